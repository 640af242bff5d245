"""The proposal agent of paper 000: several specs an answer, selected records in, every token accounted for."""

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.core.cost import total
from automcu_ray.problem.task import Task
from automcu_ray.records.journal import Repository
from automcu_ray.testing.searcher_contract import SearcherContract, ask, drive, result
from searchers.engines.base import Reply, Request
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import LLMSearch
from tests.searchers.sections import read_sections
from tests.searchers.test_llm_memory import Scripted, Threaded, settle

pytestmark = pytest.mark.thorough

BROKEN = {"backbone": [{"type": "conv"}]}
REPEATS = "Repeats, refused because they had been tried"


class TestOffline(SearcherContract):
    def make(self, task: Task, seed: int) -> TuneSearcher:
        return LLMSearch(task, seed=seed)


class TestInThreads(SearcherContract):
    """One network at a time and no lookahead: then threads do not change the order of events."""

    def make(self, task: Task, seed: int) -> TuneSearcher:
        searcher = LLMSearch(task, seed=seed, engine=Threaded(), specs_per_call=1)
        searcher.lookahead = 1
        return searcher


def network(width: int) -> dict[str, Any]:
    return {"backbone": [{"type": "conv", "out_channels": width}]}


def answer(*networks: dict[str, Any]) -> str:
    return json.dumps({"candidates": networks})


def wanted(request: Request) -> int:
    assert request.json_schema is not None
    count: int = request.json_schema["properties"]["candidates"]["minItems"]
    return count


def all_different(request: Request) -> str:
    first = 4 * request.talk
    return answer(*(network(first + index) for index in range(wanted(request))))


def search(
    task: Task, reply: Callable[[Request], str | Reply], *, threads: bool = False, **options: Any
) -> tuple[LLMSearch, Scripted]:
    """A searcher whose engine answers at once, unless in threads: then it would be asked ahead of need."""
    engine = Scripted(reply, instant=not threads)
    plain = {"notation": "json", "ask_after": 0, "mend": 0}  # the form of the paper, and nothing without asking
    searcher = LLMSearch(task, engine=engine, **{**plain, **options})
    searcher.lookahead = 1
    return searcher, engine


def sections(request: Request) -> dict[str, Any]:
    return read_sections(request.messages)


def shown(request: Request) -> dict[str, list[int]]:
    """The numbers of the candidates in a prompt, by heading."""
    lists = {title: found for title, found in sections(request).items() if isinstance(found, list)}
    return {title: [entry["candidate"] for entry in found] for title, found in lists.items()}


def test_one_call_proposes_several_networks_whose_costs_add_up_to_its_own(task: Task) -> None:
    def reply(request: Request) -> Reply:
        tokens = {"prompt_tokens": 1003, "cached_tokens": 502, "completion_tokens": 101}
        return Reply(text=all_different(request), usd=0.25, seconds=2.0, **tokens)

    searcher, engine = search(task, reply)
    searcher.budget.trained = 4
    drive(searcher, 9)
    costs = [record.candidate.cost for record in searcher.repository.records]
    assert len(engine.asked) == 1
    assert [cost.prompt_tokens for cost in costs] == [251, 251, 251, 250]
    assert [cost.completion_tokens for cost in costs] == [26, 25, 25, 25]
    spent = total(costs)
    assert (spent.prompt_tokens, spent.cached_tokens, spent.completion_tokens) == (1003, 502, 101)
    assert (spent.usd, spent.llm_seconds) == (0.25, 2.0)
    assert searcher.spent == spent
    assert {(record.candidate.talk, record.candidate.proposer) for record in searcher.repository.records} == {
        (1, "llm")
    }


def test_asks_at_temperature_0_for_as_many_networks_as_the_budget_can_use(task: Task) -> None:
    searcher, engine = search(task, all_different)
    searcher.budget.trained = 6
    drive(searcher, 20)
    assert [(request.role, request.temperature, request.top_p) for request in engine.asked] == [("proposer", 0, 1)] * 2
    assert [wanted(request) for request in engine.asked] == [4, 2]
    assert [sections(request)["Candidates wanted"] for request in engine.asked] == [4, 2]


def test_what_was_tried_before_is_shown_as_a_repeat(task: Task) -> None:
    def reply(request: Request) -> str:
        return answer(network(8), network(9 + request.talk))

    searcher, engine = search(task, reply, specs_per_call=2)
    drive(searcher, 4)
    assert [record.status for record in searcher.repository.records][:4] == ["ok", "ok", "duplicate", "ok"]
    assert shown(engine.asked[2])[REPEATS] == [3]
    reason = sections(engine.asked[2])[REPEATS][0]["reason"]
    assert reason == "equals candidate 1"


REPAIRS = {
    "mended": (answer(network(20), network(21)), ["ok", "ok", "ok", "ok"]),
    "half mended": (answer(network(20), BROKEN), ["ok", "ok", "ok", "invalid"]),
    "unreadable": ("I give up.", ["ok", "ok", "invalid", "invalid"]),
    "failed": (Reply(finish_reason="error", error="timeout"), ["ok", "ok", "invalid", "invalid"]),
}


@pytest.mark.parametrize(("repair", "statuses"), REPAIRS.values(), ids=REPAIRS.keys())
def test_only_the_unusable_ones_are_asked_for_once_more(task: Task, repair: str | Reply, statuses: list[str]) -> None:
    mixed = answer(network(8), BROKEN, {"backbone": [{"type": "magic"}]}, network(9))
    searcher, engine = search(task, lambda request: repair if request.role == "repair" else mixed)
    searcher.budget.proposals = 4
    drive(searcher, 9)
    assert sorted(r.status for r in searcher.repository.records) == sorted(statuses)
    assert [request.role for request in engine.asked] == ["proposer", "repair"]
    told = engine.asked[1].messages[-1].content
    assert "2 can be used" in told and "in the same form with 2 other" in told
    assert "out_channels: Field required" in told and "magic" in told
    assert wanted(engine.asked[1]) == 2
    assert total(r.cost for r in searcher.repository.records).prompt_tokens == (
        100 if isinstance(repair, Reply) else 200
    )
    unusable = [record for record in searcher.repository.records if record.status == "invalid"]
    assert all(record.reason and record.candidate.reply for record in unusable)


def test_an_answer_without_any_network_is_asked_again_whole_and_costs_one_record(task: Task) -> None:
    searcher, engine = search(task, lambda request: "no")
    searcher.budget.proposals = 1
    settle(searcher, records=1)
    record = searcher.repository.records[0]
    assert (record.status, record.cost.completion_tokens) == ("invalid", 20)
    assert [request.role for request in engine.asked] == ["proposer", "repair"]


class TestContext:
    def asked(self, task: Task, **options: Any) -> list[Request]:
        """The requests of three conversations of two networks each, after 0, 2 and 4 records."""
        searcher, engine = search(task, all_different, specs_per_call=2, **options)
        searcher.budget.trained = 6
        drive(searcher, 9)
        assert len(engine.asked) == 3
        return engine.asked

    def test_selected_shows_each_record_once_and_the_best_first(self, task: Task) -> None:
        first, *_, last = self.asked(task, context="selected")
        assert shown(first) == {} and "Example" in sections(first)
        numbers = [number for found in shown(last).values() for number in found]
        assert sorted(numbers) == [1, 2, 3, 4]
        best = sections(last)["Best and Pareto front"]
        assert best[0]["accuracy"] == max(entry["accuracy"] for entry in best)

    def test_none_shows_nothing(self, task: Task) -> None:
        requests = self.asked(task, context="none")
        assert [shown(request) for request in requests] == [{}, {}, {}]
        assert len({request.messages for request in requests}) == 1

    def test_all_shows_everything_oldest_first(self, task: Task) -> None:
        assert shown(self.asked(task, context="all")[-1]) == {"All candidates": [1, 2, 3, 4]}

    def test_shared_puts_all_that_was_said_before_the_question(self, task: Task) -> None:
        requests = self.asked(task, context="shared")
        assert [len(request.messages) for request in requests] == [2, 6, 10]
        last = [message.role for message in requests[-1].messages]
        assert last == ["system", "user", *["assistant", "user"] * 4]
        assert json.loads(requests[-1].messages[2].content)["spec"]["backbone"][0]["out_channels"] == 4
        assert shown(requests[-1]) == {}

    def test_the_system_message_stays_the_same_for_a_prefix_cache(self, task: Task) -> None:
        for context in ("selected", "none", "all", "shared"):
            assert len({request.messages[0] for request in self.asked(task, context=context)}) == 1


BUDGETS = {"tokens": ("tokens", 250, "330 tokens are used, the budget is 250"), "money": ("usd", 0.5, "")}


@pytest.mark.parametrize(("name", "limit", "why"), BUDGETS.values(), ids=BUDGETS.keys())
def test_a_budget_of_tokens_or_money_ends_the_search(task: Task, name: str, limit: float, why: str) -> None:
    """A conversation takes 110 tokens and a quarter of a dollar."""
    searcher, engine = search(task, all_different, specs_per_call=1)
    setattr(searcher.budget, name, limit)
    drive(searcher, 20)
    assert searcher.exhausted and searcher.suggest("one more") == "FINISHED"
    assert len(engine.asked) == searcher.trained == (3 if name == "tokens" else 2)
    assert searcher.overspent == (why or "0.5000 US dollars are spent, the budget is 0.5")


def test_what_was_in_flight_when_the_budget_ended_is_still_recorded(task: Task) -> None:
    release = threading.Event()

    def reply(request: Request) -> str:
        if request.talk == 2:
            release.wait(5)
        return all_different(request)

    searcher, engine = search(task, reply, specs_per_call=1, parallel=2, threads=True)
    searcher.budget.tokens = 110
    drive(searcher, 1)
    assert searcher.overspent and not searcher.exhausted  # the second conversation is being paid for
    assert searcher.suggest("too early") is None
    release.set()
    drive(searcher, 5, first=1)
    assert sorted(r.candidate.talk for r in searcher.repository.records) == [1, 2]
    assert {r.status for r in searcher.repository.records} == {"ok"}
    assert len(engine.asked) == 2


def test_a_resumed_run_goes_on_counting_conversations_and_asks_nothing_twice(task: Task, tmp_path: Path) -> None:
    killed, before = search(task, all_different, specs_per_call=2)
    killed.repository = Repository(tmp_path / "journal.jsonl")
    drive(killed, 3)
    ask(killed, "in flight when killed")

    resumed, after = search(task, all_different, specs_per_call=2)
    resumed.budget.trained = 6
    resumed.replay(Repository(tmp_path / "journal.jsonl"))
    assert resumed.spent == killed.spent
    drive(resumed, 20, first=100)
    seeds = [request.seed for request in (*before.asked, *after.asked)]
    assert len(seeds) == len(set(seeds))
    assert [request.talk for request in after.asked] == [3]
    assert len(resumed.repository.records) == len(resumed.repository.proposed) == 6


def test_what_it_is_shown_does_not_grow_with_the_run(task: Task) -> None:
    searcher = LLMSearch(task, specs_per_call=1, history_tokens=300)
    searcher.lookahead = 1
    drive(searcher, 40)
    prompt = searcher.proposer.preview()[0].messages[-1].content
    assert len(re.sub(r"(?s)## Candidates wanted.*", "", prompt)) < 300 * 3 + 300  # headings and fences


def test_an_accuracy_that_is_higher_shows_up_as_the_new_best(task: Task) -> None:
    searcher, engine = search(task, all_different, specs_per_call=1)
    for number, accuracy in enumerate((0.6, 0.9, 0.7, 0.5)):
        ask(searcher, f"t{number}")
        outcome = {**result(searcher, f"t{number}"), "training/val_accuracy": accuracy}
        searcher.on_trial_complete(f"t{number}", outcome)
    assert sections(engine.asked[3])["Best and Pareto front"][0]["accuracy"] == 0.9
