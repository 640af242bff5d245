import json
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.task import Task
from automcu_ray.runtime.plugins import check_options
from automcu_ray.testing.searcher_contract import SearcherContract, ask, drive, story
from searchers.engines.base import Engine, Reply, Request
from searchers.engines.offline.engine import OfflineEngine
from searchers.llm_memory import LLMMemory
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import LLMMemorySearch

pytestmark = pytest.mark.thorough

GOOD = {"backbone": [{"type": "conv", "out_channels": 8}, {"type": "downsample", "out_channels": 16}]}
ADVICE = {"problem": "too small", "suggestion": "Set layer_1.out_channels to 12."}


class Scripted(Engine):
    """Answers with what a function makes of the request: a stand-in for a slow endpoint, unless `instant`."""

    name = "scripted"

    def __init__(self, answer: Callable[[Request], str | Reply], *, instant: bool = False) -> None:
        self.answer, self.instant = answer, instant
        self.asked: list[Request] = []

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        self.asked += requests
        answers = [self.answer(request) for request in requests]
        return [
            answer
            if isinstance(answer, Reply)
            else Reply(text=answer, prompt_tokens=100, completion_tokens=10, seconds=0.5, usd=0.25, model="m")
            for answer in answers
        ]


class Slow(Scripted):
    """Answers well, but only once it is released."""

    def __init__(self) -> None:
        super().__init__(self.wait)
        self.released, self.answered = threading.Event(), threading.Event()

    def wait(self, request: Request) -> str:
        self.released.wait(60)
        self.answered.set()
        return answer_well(request)


class Threaded(OfflineEngine):
    """The offline rules behind a thread, as an endpoint would be."""

    instant = False


class TestOffline(SearcherContract):
    def make(self, task: Task, seed: int) -> TuneSearcher:
        return LLMMemorySearch(task, seed=seed)


class TestInThreads(SearcherContract):
    """One conversation at a time and no lookahead: then threads do not change the order of events."""

    def make(self, task: Task, seed: int) -> TuneSearcher:
        searcher = LLMMemorySearch(task, seed=seed, engine=Threaded(), parallel=1)
        searcher.lookahead = 1
        return searcher


def answer_well(request: Request) -> str:
    if request.role == "improver":
        return json.dumps(ADVICE)
    width = 4 + request.seed % 97
    return json.dumps({"backbone": [{"type": "conv", "out_channels": width}]})


def settle(searcher: TuneSearcher, records: int, timeout_s: float = 240.0) -> None:
    """Turn Tune's loop until that many records are there; whatever is ready is left alone."""
    deadline = time.monotonic() + timeout_s
    while len(searcher.repository.records) < records:
        assert time.monotonic() < deadline, f"only {len(searcher.repository.records)} records"
        searcher.pump()
        time.sleep(0.002)


def test_first_proposal_asks_the_generator_alone_and_later_ones_the_improver_first(task: Task) -> None:
    engine = Scripted(answer_well)
    searcher = LLMMemorySearch(task, engine=engine, parallel=1)
    searcher.lookahead = 1
    drive(searcher, 2)
    assert [request.role for request in engine.asked[:3]] == ["generator", "improver", "generator"]
    assert [len(request.messages) for request in engine.asked[:3]] == [2, 2, 2]
    assert len({request.seed for request in engine.asked}) == len(engine.asked)


def test_record_carries_triple_parent_cost_and_proposer(task: Task) -> None:
    searcher = LLMMemorySearch(task, engine=Scripted(answer_well), parallel=1)
    searcher.lookahead = 1
    drive(searcher, 2)
    first, second = searcher.repository.records
    assert (first.candidate.diagnosis, first.candidate.parent) == (None, "")
    assert second.diagnosis is not None
    assert (second.diagnosis.problem, second.diagnosis.suggestion) == tuple(ADVICE.values())
    assert second.diagnosis.outcome.startswith("accuracy 0.")
    assert second.candidate.parent == first.candidate.hash
    assert (second.candidate.proposer, second.cost.prompt_tokens, second.cost.usd) == ("llm_memory", 200, 0.5)
    assert second.cost.llm_seconds == 1.0


def test_offline_says_that_no_language_model_took_part(task: Task) -> None:
    searcher = LLMMemorySearch(task)
    drive(searcher, 2)
    assert {record.candidate.proposer for record in searcher.repository.records} == {"offline"}


def test_propose_returns_at_once_while_the_engine_thinks(task: Task) -> None:
    engine = Slow()
    searcher = LLMMemorySearch(task, engine=engine, parallel=2)
    assert searcher.suggest("a") is None
    assert not engine.answered.is_set()
    assert not searcher.proposer.__getstate__()["_running"]  # conversations do not survive pickling
    engine.released.set()
    drive(searcher, 2)
    assert len({record.candidate.hash for record in searcher.repository.records}) == 2


def test_one_repair_with_the_validators_message(task: Task) -> None:
    def answer(request: Request) -> str:
        return json.dumps(GOOD) if request.role == "repair" else '{"backbone": [{"type": "conv"}]}'

    engine = Scripted(answer)
    searcher = LLMMemorySearch(task, engine=engine, parallel=1)
    searcher.budget.trained = 1
    drive(searcher, 1)
    repair = engine.asked[1]
    assert [message.role for message in repair.messages] == ["system", "user", "assistant", "user"]
    assert "layer_1.conv.out_channels: Field required" in repair.messages[-1].content
    assert searcher.repository.records[0].cost.completion_tokens == 20


UNREADABLE = {
    "prose": ("Here you are!", "no JSON object", "schema"),
    "empty": ("", "no JSON object", "schema"),
    "truncated": ('{"backbone": [{"type": "conv", "out_ch', "not a JSON object", "schema"),
    "cut off": (Reply(text=json.dumps(GOOD), finish_reason="length"), "cut off", "schema"),
    "unknown block": ('{"backbone": [{"type": "magic"}]}', "magic", "schema"),
    "wrong types": ('{"backbone": "conv"}', "backbone", "schema"),
    "nested": ('{"a":' * 100_000, "characters", "schema"),
    "not constructible": (json.dumps({"backbone": [{"type": "max_pool", "kernel_size": 8}] * 2}), "", "shape"),
}


@pytest.mark.parametrize(("reply", "message", "resource"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_unusable_reply_becomes_a_record(task: Task, reply: str | Reply, message: str, resource: str) -> None:
    searcher = LLMMemorySearch(task, engine=Scripted(lambda request: reply), parallel=1)
    searcher.budget.proposals = 1
    settle(searcher, records=1)
    record = searcher.repository.records[0]
    assert (record.status, record.candidate.spec) == ("invalid", None)
    assert message in record.reason
    assert record.candidate.violations[0].resource == resource
    assert len(record.candidate.reply) <= 500
    assert searcher.exhausted


def test_fences_thoughts_and_prose_around_the_object_are_read_over(task: Task) -> None:
    text = f"<think>{{maybe}} a conv?</think>Sure {{see below}}:\n```json\n{json.dumps(GOOD)}\n```\nEnjoy!"
    searcher = LLMMemorySearch(task, engine=Scripted(lambda request: text), parallel=1)
    searcher.budget.trained = 1
    drive(searcher, 1)
    assert searcher.trained == 1


def test_a_dead_engine_ends_the_search_after_bounded_patience(task: Task) -> None:
    engine = Scripted(lambda request: Reply(finish_reason="error", error="connection refused"))
    searcher = LLMMemorySearch(task, engine=engine, parallel=2, patience=3, backoff_s=0.01)
    settle(searcher, records=3)
    assert ask(searcher, "a") == "FINISHED"
    assert searcher.gave_up.endswith("failed 3 times in a row; last: engine: connection refused")
    assert {record.status for record in searcher.repository.records} == {"invalid"}
    assert len(engine.asked) <= 2 * 2 * 3
    assert searcher.proposer.memory.history == ()  # it says nothing about networks


def test_an_engine_that_raises_costs_one_candidate(task: Task) -> None:
    def answer(request: Request) -> str:
        if request.seed < 8:
            raise RuntimeError("boom")
        return answer_well(request)

    searcher = LLMMemorySearch(task, engine=Scripted(answer), parallel=1, backoff_s=0.01)
    drive(searcher, 2)
    assert [record.status for record in searcher.repository.records] == ["invalid", "ok", "ok"]
    assert searcher.proposer.failures == 0


def test_no_conversation_is_started_that_the_budget_cannot_use(task: Task) -> None:
    engine = Scripted(answer_well)
    searcher = LLMMemorySearch(task, engine=engine, parallel=8)
    searcher.budget.trained = 3
    drive(searcher, 10)
    assert sum(request.role == "generator" for request in engine.asked) == len(story(searcher)) == 3


def test_options_are_those_of_the_config() -> None:
    checked = check_options("searcher", "llm_memory", LLMMemory, {"memory": 3, "parallel": "2"})
    assert checked == {"memory": 3, "parallel": 2}
    with pytest.raises(ConfigError, match="did you mean 'memory'"):
        check_options("searcher", "llm_memory", LLMMemory, {"memry": 3})
