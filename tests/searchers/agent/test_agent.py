"""One attempt: tools until it submits, a fresh conversation each time, and nothing that an engine says breaks it."""

import json
from pathlib import Path
from typing import Any

import pytest

from searchers.agent.agent import Agent
from searchers.agent.workspace import Workspace
from searchers.engines.base import Reply
from tests.searchers.agent.conftest import arena_task
from tests.searchers.agent.scripted import ScriptedEngine, write


def agent(tmp_path: Path, script: dict[int, list[Any]], tool_calls: int = 5) -> Agent:
    workspace = Workspace(tmp_path / "workspace", lambda command, folder: f"exit 0\nran {command}")
    workspace.write("artifact/net.c", "int seed;")
    task = arena_task().replace(tool_calls=tool_calls)
    return Agent(task, "hil", ScriptedEngine(script), workspace, seed=3)


def test_an_attempt_ends_with_what_was_submitted_and_begins_anew_with_notes(tmp_path: Path) -> None:
    calls = [
        write("artifact/net.c", "int better;"),
        write("notes.md", "better is better"),
        {"tool": "run", "command": "ls"},
    ]
    playing = agent(tmp_path, {1: calls})
    first = playing.play(1, [], tmp_path / "one")
    assert (first.tool_calls, first.ended, first.notes, first.cost.completion_tokens) == (
        4,
        "submitted",
        "better is better",
        40,
    )
    assert (tmp_path / "one" / "artifact" / "net.c").read_text() == "int better;"
    turns = [json.loads(line) for line in (tmp_path / "one" / "conversation.jsonl").read_text().splitlines()]
    assert [turn["role"] for turn in turns] == ["system", "user"] + 4 * ["assistant", "user"]
    assert "ran ls" in turns[-3]["content"]
    playing.play(2, [], tmp_path / "two")
    engine = playing.engine
    assert isinstance(engine, ScriptedEngine)
    assert len(engine.heard[2]) == 2 and "better is better" in engine.heard[2][1].content
    assert len({request.seed for request in engine.requests}) == len(engine.requests)


@pytest.mark.parametrize(
    "call",
    [
        "I would rather talk.",
        write("../../etc/cron.d/x", "* * * * * root sh"),
        write("artifact/main.c", "int main(void) {}"),
        {"tool": "read", "path": "/etc/shadow"},
        {"tool": "read", "path": "artifact"},
        {"tool": "list", "path": "nowhere"},
        {"tool": "read", "path": "artifact/net.c/x"},
        '{"tool": "run", "command": ' + "[" * 5000,
    ],
)
def test_an_engine_without_end_or_sense_costs_its_calls_and_nothing_else(call: Any, tmp_path: Path) -> None:
    playing = agent(tmp_path, {1: 100 * [call]})
    made = playing.play(1, [], tmp_path / "one")
    assert (made.tool_calls, made.ended) == (5, "out of calls")
    assert (tmp_path / "one" / "artifact" / "net.c").read_text() == "int seed;"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "workspace"]


def test_an_engine_that_fails_ends_the_attempt(tmp_path: Path) -> None:
    made = agent(tmp_path, {1: [Reply.failed("no connection")]}).play(1, [], tmp_path / "one")
    assert (made.ended, made.tool_calls) == ("engine failed", 1)
