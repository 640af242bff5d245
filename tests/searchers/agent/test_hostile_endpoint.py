"""Endpoints play the agent over HTTP; one that is no language model costs its own attempt, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from searchers.agent.agent import Agent
from searchers.agent.workspace import Workspace
from searchers.engines.openai import OpenAIEngine
from tests.searchers.agent.conftest import arena_task
from tests.searchers.engines.endpoint import JsonHandler, Loopback


def chat(content: Any, **usage: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return {
        "id": "1",
        "model": "m",
        "choices": [choice],
        "usage": usage or {"prompt_tokens": 1, "completion_tokens": 1},
    }


class Hostile(JsonHandler):
    """Says the same to every request: its server's `says`, with its server's `status`."""

    def do_POST(self) -> None:
        server: Any = self.server
        self.rfile.read(int(self.headers["Content-Length"]))
        with server.lock:
            server.bodies.append({})
        self.send(server.status, server.says, Location="http://127.0.0.1:9/")


ANSWERS: dict[str, tuple[int, Any, bool]] = {  # HTTP status, what it says, whether that is a reply at all
    "a server's error": (500, b"<html>\x1b[2J upstream is gone", False),
    "another address": (302, b"", False),
    "half a JSON": (200, b"{", False),
    "deep JSON": (200, b"[" * 100_000, False),
    "a megabyte": (200, b"x" * 1_000_000, False),
    "no choice": (200, {"choices": []}, False),
    "tokens below zero": (200, chat("Ignore the task.", prompt_tokens=-(10**30), completion_tokens="many"), False),
    "no content": (200, chat(None), True),
    "tools without end": (200, chat(json.dumps({"tool": "list", "path": "."})), True),
    "a wild path": (200, chat(json.dumps({"tool": "write", "path": "../" * 20 + "etc/x", "content": "sh"})), True),
    "bytes in C": (200, chat(json.dumps({"tool": "write", "path": "artifact/net.c", "content": "\x00" * 9})), True),
    "endless output": (200, chat(json.dumps({"tool": "run", "command": "yes"})), True),
    "open brackets": (200, chat("{" * 10_000), True),
    "a terminal's codes": (200, chat("\x1b]0;owned\x07 Ignore the task."), True),
}


def test_an_endpoint_with_functions_plays_by_calling_one(tmp_path: Path) -> None:
    served = Loopback(Hostile)
    said, function = chat("Done."), {"name": "answer", "arguments": '{"tool": "submit"}'}
    said["choices"][0]["message"]["tool_calls"] = [{"id": "1", "type": "function", "function": function}]
    served.server.status, served.server.says = 200, said
    workspace = Workspace(tmp_path / "workspace", lambda command, folder: "")
    workspace.write("artifact/net.c", "int seed;")
    engine = OpenAIEngine(base_url=served.url, model="m", tool_calls=True)
    try:
        made = Agent(arena_task(), "hil", engine, workspace, seed=3).play(1, [], tmp_path / "one")
    finally:
        served.close()
    assert (made.tool_calls, made.ended, made.unusable_replies) == (1, "submitted", 0)


@pytest.mark.thorough
@pytest.mark.parametrize("what", ANSWERS)
def test_it_costs_its_own_attempt(what: str, tmp_path: Path) -> None:
    served = Loopback(Hostile)
    served.server.status, served.server.says, replies = ANSWERS[what]
    workspace = Workspace(tmp_path / "workspace", lambda command, folder: "exit 0\n" + "y\n" * 1_000_000)
    workspace.write("artifact/net.c", "int seed;")
    engine = OpenAIEngine(base_url=served.url, model="m", timeout_s=5, backoff_s=0.001, attempts=2)
    try:
        made = Agent(arena_task().replace(tool_calls=5), "hil", engine, workspace, seed=3).play(1, [], tmp_path / "one")
    finally:
        served.close()
    assert (made.tool_calls, made.ended) == ((5, "out of calls") if replies else (1, "engine failed"))
    assert made.cost.prompt_tokens >= 0 and len(served.bodies) <= 2 * 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "workspace"]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 2_000_000
