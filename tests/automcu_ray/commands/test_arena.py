"""`automcu arena` against an endpoint on loopback, honest and hostile; and what the user has to fix."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.commands.main import main
from tests.searchers.engines.endpoint import JsonHandler, Loopback

TINY = [
    "workload.network.backbone=[{type: conv, out_channels: 4, stride: 2}, {type: max_pool}]",
    *("workload.training.epochs=1", "feasibility.images=1", "feasibility.random_inputs=1", "tool_calls=8"),
]
HOSTILE = [
    "Ignore the task.",
    {"tool": "write", "path": "../../../../../../etc/cron.d/automcu", "content": "* * * * * root sh"},
    {"tool": "write", "path": "artifact/guard.c", "content": "void guard_init(void) {}"},
    {"tool": "read", "path": "/proc/self/environ"},
    {"tool": "run", "command": "rm -rf / ; cat /etc/passwd; curl http://127.0.0.1/"},
    {"tool": "write", "path": "artifact/net.c", "content": '#include "/etc/passwd"\nvoid net(void) {}'},
]


class Player(JsonHandler):
    """Answers with the next of its server's replies, and submits after that; as a judge it refuses."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server: Any = self.server
        with server.lock:
            server.bodies.append(body)
            said = sum(message["role"] == "assistant" for message in body["messages"])
        reply = server.replies[said] if said < len(server.replies) else {"tool": "submit"}
        if "verdict" in body["response_format"]["json_schema"]["schema"]["properties"]:
            reply = {"verdict": "cheating", "reason": "It is a test."}
        text = reply if isinstance(reply, str) else json.dumps(reply)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 5}
        self.send(200, {"id": "1", "model": "player", "choices": [choice], "usage": usage})


def automcu(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["automcu", "arena", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def play(
    monkeypatch: pytest.MonkeyPatch, folder: Path, replies: list[Any], judge: str = "none"
) -> tuple[int, list[Any]]:
    served = Loopback(Player)
    served.server.replies = replies
    changes = [*TINY, "attempts=1", f"engine.base_url={served.url}", "engine.model=player"]
    if judge != "none":
        changes += [f"judge.base_url={served.url}", "judge.model=referee"]
    flags = [word for change in changes for word in ("--set", change)]
    try:
        words = ("--engine", "openai", "--judge", judge, "--runs", str(folder), "--name", "one", *flags)
        return automcu(monkeypatch, *words), served.bodies
    finally:
        served.close()


@pytest.mark.thorough
@pytest.mark.usefixtures("ray_cluster", "qemu", "sandbox", "signals")
def test_an_endpoint_plays_another_judges_and_the_report_shows_what_they_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, bodies = play(monkeypatch, tmp_path, [{"tool": "list", "path": "artifact"}], judge="openai")
    assert status == 1 and [body["model"] for body in bodies] == ["player", "player", "referee"]
    assert bodies[0]["response_format"]["json_schema"]["schema"]["properties"]["tool"]
    assert "A judge, another model" in bodies[0]["messages"][1]["content"]
    assert "No file differs from the seed" in bodies[2]["messages"][1]["content"]
    page = (tmp_path / "one" / "report.html").read_text()
    assert "artifact/net.c" in page and "315" in page  # the conversation, and the tokens of both
    assert "behaviour: pass" in page and "cheating: It is a test." in page and "judge: referee" in page
    told = " ".join(capsys.readouterr().out.split())
    assert "hil attempt 1: not valid: judge: a judge calls it cheating: It is a test." in told


@pytest.mark.thorough
@pytest.mark.usefixtures("ray_cluster", "qemu", "sandbox", "signals")
def test_a_hostile_endpoint_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, bodies = play(monkeypatch, tmp_path, HOSTILE)
    assert status == 1 and len(bodies) == 7
    assert "root:" not in json.dumps(bodies)  # no file of this machine came back
    events = [json.loads(line) for line in (tmp_path / "one" / "hil" / "journal.jsonl").open()]
    made, observed = events[0]["attempt"], events[1]["observation"]
    assert (made["unusable_replies"], len(made["refused"])) == (1, 3)
    assert [check["name"] for check in observed["checks"]] == ["files", "build"]
    assert "root:" not in observed["checks"][1]["detail"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--task", "qemu_sped"], "qemu_speed"),
        (["--setting", "hints"], "score, doc, hil"),
        (["--engine", "offline"], "language model"),
        (["--engine", "openai", "--set", "engine.model=x", "--judge", "offline"], "a judge is a language model"),
        (["--set", "judge.model=x"], "--judge"),
        (["--set", "constraints.ram=3"], "constraints.ram"),
        (["--resume", "nowhere"], "no run in"),
    ],
)
def test_what_the_user_has_to_fix_is_one_line_and_nothing_written(
    words: list[str],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert automcu(monkeypatch, *words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and why in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
