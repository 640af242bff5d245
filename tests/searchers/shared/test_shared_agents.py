"""Agents that share a conversation: what counts as a failure, where it ends, and what a kill costs."""

import json
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.problem.task import Task
from automcu_ray.records.events import ToolCalled
from automcu_ray.records.journal import Repository
from searchers.engines.base import Engine, Reply, Request
from searchers.engines.recording.logging_engine import LoggingEngine
from searchers.engines.simulated import SimulatedEngine
from searchers.gate.gate import Gate
from searchers.shared.conversation import SharedConversation
from searchers.shared.shared_agents import SharedAgents
from searchers.stopping import Budget

SMALL, LARGE = "c8 d16", "c999 r999"
WAY = [("proposal", "propose", SMALL), ("evaluation", "evaluate", 1), ("training", "train", 1)]


class Scripted(Engine):
    """Says one line of a script after the other; it is not asked beyond."""

    name = "scripted"
    instant = True

    def __init__(self, *script: Any) -> None:
        self.script = [line if isinstance(line, str) else json.dumps(said(*line)) for line in script]

    def complete(self, requests: list[Request]) -> list[Reply]:  # type: ignore[override]
        (request,) = requests
        text = self.script[sum(message.role == "assistant" for message in request.messages)]
        return [Reply(text=text, prompt_tokens=len(request.messages), completion_tokens=1)]


def said(role: str, tool: str, what: str | int) -> dict[str, Any]:
    return {"role": role, "tool": tool, "network" if isinstance(what, str) else "number": what}


def agents(
    task: Task, engine: Engine, repository: Repository | None = None, *, calls: int = 40, trained: int = 1
) -> SharedAgents:
    talk = SharedConversation(task, engine, trained=trained, calls=calls)
    about = {"repository": repository or Repository(), "budget": Budget(trained=trained), "tolerance": 3}
    return SharedAgents(talk, gate=Gate(task), calls=calls, **about)


def play(searcher: SharedAgents) -> list[ToolCalled]:
    """Let the agents have an accuracy for each trial until they have ended; return their calls."""
    for trial in range(100):
        config = searcher.suggest(f"t{trial}")
        if config == SharedAgents.FINISHED:
            return searcher.repository.all(ToolCalled)
        assert isinstance(config, dict)
        searcher.on_trial_complete(f"t{trial}", {"val_accuracy": 0.5 + config["number"] / 100})
    raise AssertionError("the conversation does not end")


def test_the_stages_are_driven_by_calls_and_the_deployed_candidate_is_chosen(digits_task: Task) -> None:
    searcher = agents(digits_task, Scripted(*WAY, ("supervisor", "deploy", 1)))
    calls = play(searcher)
    assert [call.tool for call in calls] == ["propose", "evaluate", "train", "deploy"]
    assert not any(call.failure for call in calls)
    assert searcher.chosen == 1 and searcher.early_end.reason == "the agents deploy #1"
    (record,) = searcher.repository.records
    assert record.status == "ok" and record.cost.tokens == 0
    assert calls[0].cost.tokens == 3 and calls[3].cost.tokens == 9, "the transcript grows by two messages a call"
    assert searcher.spent.tokens == 3 + 5 + 7 + 9


@pytest.mark.parametrize(
    ("line", "failure", "told"),
    [
        ("I would widen it", "invalid call", "no JSON object"),
        (("proposal", "sing", 1), "invalid call", "tool: "),
        (("proposal", "propose", "x y z"), "invalid call", "no network: "),
        (("training", "propose", SMALL), "wrong role", "propose is no tool of the training agent"),
        (("evaluation", "evaluate", 7), "wrong task", "no candidate #7"),
        (("training", "train", 1), "wrong task", "no candidate #1 waits"),
        (("supervisor", "deploy", 1), "wrong task", "no candidate #1 was trained"),
    ],
)
def test_failed_calls_are_counted_by_kind_and_told(line: Any, failure: str, told: str, digits_task: Task) -> None:
    calls = play(agents(digits_task, Scripted(line, *WAY, ("supervisor", "deploy", 1))))
    assert [call.failure for call in calls] == [failure, "", "", "", ""]
    assert told in calls[0].said


def test_what_was_not_evaluated_is_not_trained_and_what_is_settled_is_not_trained_again(digits_task: Task) -> None:
    early, again = ("training", "train", 1), ("training", "train", 1)
    calls = play(agents(digits_task, Scripted(WAY[0], early, *WAY[1:], again, ("supervisor", "deploy", 1))))
    assert [call.failure for call in calls] == ["", "wrong task", "", "", "wrong task", ""]


def test_a_network_that_is_refused_is_a_record_and_no_failed_call(digits_task: Task) -> None:
    refused = [("proposal", "propose", LARGE), ("evaluation", "evaluate", 1)]
    rest = [(role, tool, 2 if isinstance(what, int) else what) for role, tool, what in WAY]
    searcher = agents(digits_task, Scripted(*refused, *rest, ("supervisor", "deploy", 2)))
    calls = play(searcher)
    assert [record.status for record in searcher.repository.records] == ["infeasible", "ok"]
    assert not any(call.failure for call in calls) and "over" in calls[1].said


def test_failures_in_a_row_and_used_up_calls_are_dead_ends(digits_task: Task) -> None:
    searcher = agents(digits_task, Scripted(*WAY, "no", "no", "no"))
    assert len(play(searcher)) == 6
    assert searcher.chosen is None and searcher.early_end.reason.startswith("a dead end: 3 failed calls in a row")
    searcher = agents(digits_task, Scripted("no", "no", WAY[0], "no", "no", *WAY[1:]), calls=7)
    assert len(play(searcher)) == 7
    assert searcher.early_end.reason == "a dead end: all 7 calls are used, and nothing is deployed"


def test_cut_after_any_line_the_run_goes_on_to_the_same_end_and_pays_no_call_twice(
    digits_task: Task, tmp_path: Path
) -> None:
    def engine(folder: Path) -> LoggingEngine:
        return LoggingEngine(SimulatedEngine(errors=0.3), folder / "calls.jsonl")

    def run(folder: Path) -> list[Any]:
        searcher = agents(digits_task, engine(folder), Repository(folder / "journal.jsonl"), trained=3)
        play(searcher)
        outcomes = [(r.candidate.number, r.candidate.hash, r.status) for r in searcher.repository.records]
        calls = [called.model_dump() for called in searcher.repository.all(ToolCalled)]
        return [searcher.chosen, searcher.early_end.reason, outcomes, calls, searcher.spent.tokens]

    (whole := tmp_path / "whole").mkdir()
    expected = run(whole)
    assert expected[0] is not None and any(call["failure"] for call in expected[3])
    lines = (whole / "journal.jsonl").read_bytes().splitlines(keepends=True)
    paid = (whole / "calls.jsonl").read_bytes()
    for kept in range(len(lines)):
        (folder := tmp_path / str(kept)).mkdir()
        (folder / "journal.jsonl").write_bytes(b"".join(lines[:kept]))
        (folder / "calls.jsonl").write_bytes(paid)
        assert run(folder) == expected, f"cut after line {kept}"
        assert (folder / "calls.jsonl").read_bytes() == paid
