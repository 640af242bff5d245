"""Conversations in threads: their order, how many at a time, and what each may know."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import pytest

from automcu_ray.problem.task import Task
from automcu_ray.records.journal import Repository
from automcu_ray.testing.searcher_contract import drive
from searchers.engines.base import Begun, Reply, Request
from searchers.engines.recording.logging_engine import LoggingEngine
from searchers.tune_searchers import LLMMemorySearch, LLMSearch
from tests.searchers.test_llm_memory import Scripted, answer_well, settle


class Held(Scripted):
    """Answers conversation n with a network n + 3 channels wide, once it has been released."""

    def __init__(self, recorded: Mapping[int, Begun] = MappingProxyType({})) -> None:
        super().__init__(self.reply)
        self.recorded = recorded
        self.released = {number: threading.Event() for number in range(1, 9)}
        self.begun: list[Begun] = []

    def begin(self, conversation: int, begun: Begun) -> None:
        assert conversation == len(self.begun) + 1
        self.begun.append(begun)

    def release(self, *conversations: int) -> None:
        for number in conversations:
            self.released[number].set()

    def reply(self, request: Request) -> str | Reply:
        self.released[request.talk].wait(5)
        return json.dumps({"candidates": [{"backbone": [{"type": "conv", "out_channels": request.talk + 3}]}]})

    @property
    def conversations(self) -> list[int]:
        return sorted(request.talk for request in self.asked)


def search(task: Task, engine: Held, parallel: int = 1) -> LLMSearch:
    return LLMSearch(task, engine=engine, specs_per_call=1, parallel=parallel, ask_after=0)


def turn(searcher: LLMSearch, seconds: float = 0.05) -> None:
    """Turn Tune's loop for a while; nothing is trained."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        searcher.pump()
        time.sleep(0.002)


def test_proposals_come_in_the_order_of_their_conversations(task: Task) -> None:
    engine = Held()
    searcher = search(task, engine, parallel=3)
    searcher.lookahead = 3
    turn(searcher)
    engine.release(3, 2)
    turn(searcher)
    assert (searcher.proposer.ordered, searcher.repository.proposed) == (3, {})
    engine.release(1, *range(4, 9))
    turn(searcher)
    proposed = searcher.repository.proposed
    assert [proposed[number].talk for number in (1, 2, 3)] == [1, 2, 3]


def test_no_more_conversations_at_a_time_than_allowed_and_a_bounded_stock(task: Task) -> None:
    engine = Held()
    searcher = search(task, engine, parallel=2)
    turn(searcher)
    assert engine.conversations == [1, 2]
    engine.release(*range(1, 9))
    turn(searcher, 0.2)
    assert len(searcher.ready) == searcher.lookahead == 2
    ordered = searcher.proposer.ordered
    assert ordered <= 2 and len(engine.asked) == len(searcher.ready) + ordered


def test_the_next_conversation_goes_on_while_candidates_train(task: Task) -> None:
    engine = Held()
    searcher = search(task, engine)
    searcher.lookahead = 1
    engine.release(1)
    turn(searcher)
    searcher.suggest("training")
    turn(searcher)
    assert engine.conversations == [1, 2] and len(searcher.live) == 1


def test_a_conversation_knows_what_was_learned_before_it_began(task: Task) -> None:
    engine = Held()
    engine.release(*range(1, 9))
    searcher = search(task, engine)
    searcher.lookahead = 1
    searcher.budget.trained = 4
    drive(searcher, 9)
    numbers = [number for begun in engine.begun for number in begun.known]
    assert engine.begun[0] == Begun(known=(), size=1, left=4)
    assert numbers == sorted(set(numbers)) and set(numbers) <= {1, 2, 3}  # each is news once


def test_a_recorded_conversation_waits_for_the_records_that_it_knew(task: Task) -> None:
    engine = Held({1: Begun(), 2: Begun(known=(1,)), 3: Begun(known=(2,))})
    engine.release(*range(1, 9))
    searcher = search(task, engine, parallel=3)
    turn(searcher)
    assert engine.conversations == [1]  # the second one knew the first record, which training has yet to make
    drive(searcher, 3)
    assert [begun.known for begun in engine.begun[:3]] == [(), (1,), (2,)]


def test_an_engine_that_fails_is_asked_again_later_and_later(task: Task) -> None:
    times: list[float] = []

    def fail(request: Request) -> Reply:
        times.append(time.monotonic())
        return Reply(finish_reason="error", error="down")

    searcher = LLMSearch(task, engine=Scripted(fail), patience=3, backoff_s=0.1)
    settle(searcher, records=3)
    assert searcher.gave_up and searcher.exhausted
    waits = [later - earlier for earlier, later in pairwise(times)]  # the engine itself has tried again already
    assert waits[0] >= 0.1 and waits[1] >= 0.2


@pytest.mark.parametrize("make", [LLMSearch, LLMMemorySearch])
def test_a_preview_is_what_would_be_asked_and_asks_nobody(make: type[LLMSearch | LLMMemorySearch], task: Task) -> None:
    preview = make(task, engine=Scripted(answer_well)).proposer.preview()
    engine = Scripted(answer_well)
    searcher = make(task, engine=engine, parallel=1)
    settle(searcher, records=0)
    while not engine.asked:
        turn(searcher)
    assert preview[0].messages == engine.asked[0].messages
    assert preview[0].seed == engine.asked[0].seed


def test_an_answer_behind_a_conversation_that_hangs_is_not_paid_for_twice(task: Task, tmp_path: Path) -> None:
    journal, calls = tmp_path / "journal.jsonl", tmp_path / "calls.jsonl"
    hanging = Held()
    hanging.release(1, 3)
    first = LLMSearch(task, engine=LoggingEngine(hanging, calls), specs_per_call=1, parallel=3, ask_after=0)
    first.repository, first.lookahead = Repository(journal), 3
    drive(first, 1)  # the first record comes when conversations 2 and 3 have begun
    turn(first)
    assert {json.loads(line)["request"]["talk"] for line in calls.read_text().splitlines()} == {1, 3}
    engine = Held()
    engine.release(*range(1, 9))
    second = LLMSearch(
        task, engine=LoggingEngine(engine, calls), specs_per_call=1, parallel=3, ask_after=0
    )  # after a kill
    second.replay(Repository(journal))
    drive(second, 3)
    assert engine.conversations[:2] == [2, 4]
    assert [record.candidate.talk for record in second.repository.records] == [1, 2, 3, 4]


PROGRAM = """
import time
from searchers.tune_searchers import LLMSearch
from tests.searchers.conftest import make_task
from tests.searchers.test_llm_memory import Scripted

searcher = LLMSearch(make_task(), engine=Scripted(lambda request: time.sleep(600)))
searcher.pump()
assert searcher.proposer.ordered == 4
searcher.close()
"""


@pytest.mark.thorough
def test_a_conversation_that_hangs_does_not_keep_the_process() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=Path(__file__).parents[3], check=True, timeout=240)
