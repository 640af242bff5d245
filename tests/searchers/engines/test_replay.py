"""A recorded run replayed: the same records, bit for bit, in whatever order results come in the second time."""

import json
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from automcu_ray.problem.task import Task
from automcu_ray.records.journal import Repository
from searchers.dialogue.llm_proposer import LLMProposer
from searchers.engines.base import Engine, Reply, Request
from searchers.engines.recording.logging_engine import LoggingEngine
from searchers.engines.recording.replay_engine import ReplayEngine
from searchers.tune_searchers import LLMMemorySearch, LLMSearch
from tests.searchers.engines.test_offline import LinkerLike
from tests.searchers.test_llm_memory import Scripted

pytestmark = pytest.mark.thorough

SEARCHERS = {"llm": LLMSearch, "llm_memory": LLMMemorySearch}


def jittery(seed: int) -> Engine:
    """An engine that takes its time, and now and then fails, repeats itself or writes rubbish."""
    rng = Random(seed)

    def spec(request: Request) -> dict[str, Any]:
        width = 4 + (len(request.messages[-1].content) + request.seed) % 40
        return {"backbone": [{"type": "conv", "out_channels": width}, {"type": "residual", "out_channels": width}]}

    def answer(request: Request) -> str | Reply:
        time.sleep(rng.uniform(0, 0.01))
        luck = rng.random()
        if luck < 0.05:
            return Reply(finish_reason="error", error="busy", prompt_tokens=7)
        if luck < 0.1 or request.talk == 3:
            return "no idea"
        if request.role == "improver":
            return json.dumps({"problem": f"p{len(request.messages[1].content)}", "suggestion": f"s{luck}"})
        if isinstance(request.json_schema, dict) and "candidates" in request.json_schema["properties"]:
            return json.dumps({"candidates": [spec(request), {"backbone": 1}, spec(request)]})
        return json.dumps(spec(request))

    return Scripted(answer)


def make(name: str, task: Task, engine: Engine) -> LLMProposer:
    options = {"parallel": 2, "backoff_s": 0.001, "patience": 50, "stall": 1000}
    searcher: LLMProposer = SEARCHERS[name](task, seed=3, engine=engine, **options)
    searcher.gate = LinkerLike(task)
    searcher.budget.trained, searcher.budget.proposals = 12, 200
    return searcher


def run(searcher: LLMProposer, order: Random, until: int = 10_000) -> None:
    """Train three at a time; which one ends first, and how long anything takes, is up to `order`."""
    deadline = time.monotonic() + 240
    for step in range(1_000_000):
        assert time.monotonic() < deadline, "the run does not end"
        if len(searcher.repository.records) >= until:
            return
        if len(searcher.live) < 3 and searcher.suggest(f"trial_{step}") == "FINISHED":
            return
        if searcher.live and order.random() < 0.3:
            trial = order.choice(list(searcher.live))
            accuracy = (searcher.live[trial][0].number * 37 % 100) / 100  # a candidate's own, whenever it comes
            searcher.on_trial_complete(trial, {"val_accuracy": accuracy})
        time.sleep(order.uniform(0, 0.003))


def story(repository: Repository) -> list[str]:
    """All records in the order of their candidates, without the times at which they were written."""
    records = sorted(repository.records, key=lambda record: record.candidate.number)
    return [record.model_dump_json(exclude={"finished_at_s"}) for record in records]


@pytest.mark.parametrize("name", SEARCHERS)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("tokens", [None, 600])
def test_a_replay_gives_the_same_records_and_ends_at_the_same_budget(
    task: Task, tmp_path: Path, name: str, seed: int, tokens: int | None
) -> None:
    first = make(name, task, LoggingEngine(jittery(seed), tmp_path / "llm" / "calls.jsonl"))
    first.budget.tokens = tokens
    run(first, Random(seed))
    second = make(name, task, ReplayEngine(path=tmp_path))
    second.budget.tokens = tokens
    run(second, Random(seed + 100))
    assert story(first.repository) == story(second.repository)
    if tokens:
        assert first.overspent and first.trained < 12
    else:
        assert first.trained == second.trained == 12
        statuses = {record.status for record in first.repository.records}
        assert {"ok", "invalid"} <= statuses  # the run had something to get wrong


@pytest.mark.parametrize("name", SEARCHERS)
def test_a_replay_ends_where_an_interrupted_run_did(task: Task, tmp_path: Path, name: str) -> None:
    first = make(name, task, LoggingEngine(jittery(1), tmp_path / "llm" / "calls.jsonl"))
    run(first, Random(1), until=5)
    answer_all(first)
    second = make(name, task, ReplayEngine(path=tmp_path))
    run(second, Random(2))
    assert second.gave_up == "the recording is at its end"
    assert not any("no reply is recorded" in record.reason for record in second.repository.records)


def test_a_replay_that_departs_from_its_recording_ends(task: Task, tmp_path: Path) -> None:
    first = make("llm_memory", task, LoggingEngine(jittery(1), tmp_path / "llm" / "calls.jsonl"))
    run(first, Random(1))
    beginnings = tmp_path / "llm" / "talks.jsonl"
    beginnings.write_text(beginnings.read_text().replace('"known":[1', '"known":[77,1'))
    second = make("llm_memory", task, ReplayEngine(path=tmp_path))
    run(second, Random(2))
    assert second.gave_up == "the recording is at its end" and second.trained < 12


def answer_all(searcher: LLMProposer) -> None:
    """Wait until every call has come back, and is in the log, with nobody there to hear the answer."""
    while not all(running.future.done() for running in searcher.proposer._running):
        time.sleep(0.001)


@pytest.mark.parametrize("name", SEARCHERS)
def test_a_killed_run_pays_for_no_conversation_twice(task: Task, tmp_path: Path, name: str) -> None:
    journal, calls = tmp_path / "journal.jsonl", tmp_path / "calls.jsonl"
    first = make(name, task, LoggingEngine(jittery(5), calls))
    first.repository = Repository(journal)
    run(first, Random(5), until=6)
    answer_all(first)
    paid = [json.loads(line) for line in calls.read_text().splitlines()]
    engine = jittery(6)
    second = make(name, task, LoggingEngine(engine, calls))
    second.replay(Repository(journal))
    run(second, Random(7))
    assert second.trained == 12
    answered = {
        (row["request"]["talk"], row["request"]["seed"]) for row in paid if row["reply"]["finish_reason"] == "stop"
    }
    asked = {(request.talk, request.seed) for request in engine.asked}  # type: ignore[attr-defined]
    assert not asked & answered
    numbers = [record.candidate.number for record in second.repository.records]
    assert len(numbers) == len(set(numbers))
