"""When an engine is asked, what is proposed without it, and what a weak one does to a run."""

import json
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.task import Task
from automcu_ray.records.journal import Repository
from automcu_ray.runtime.config import Plugin
from automcu_ray.testing.searcher_contract import ask, drive, result
from searchers import pick_proposer
from searchers.engines.base import Engine, Request
from searchers.engines.recording.logging_engine import LoggingEngine
from searchers.engines.recording.replay_engine import ReplayEngine
from searchers.engines.simulated import SimulatedEngine, pieces, read_rows
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import GeniusSearch, LLMMemorySearch, LLMSearch
from tests.searchers.engines.test_offline import LinkerLike
from tests.searchers.test_llm_memory import Scripted

CAPACITY = Plugin(name="capacity")
FORMS: dict[str, tuple[type[TuneSearcher], dict[str, Any]]] = {
    "llm": (LLMSearch, {"ask_after": 3}),
    "one role": (LLMMemorySearch, {"roles": "one", "seeds": 4, "ask_after": 3}),
    "two roles": (LLMMemorySearch, {"seeds": 4}),
}


class Listening(SimulatedEngine):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked: list[Request] = []

    def complete(self, requests: Any) -> Any:
        self.asked += requests
        return super().complete(requests)


def lines(*networks: str) -> str:
    return json.dumps({"plan": "as before", "networks": networks})


def known(request: Request) -> set[str]:
    text = request.messages[-1].content
    return {line.split()[0] for line in text.splitlines() if line.startswith("#") and "under way" not in line}


@pytest.mark.parametrize("form", FORMS)
def test_no_two_requests_are_equal_and_each_conversation_knows_something_new(task: Task, form: str) -> None:
    make, options = FORMS[form]
    tokens = 0
    for number in range(3):  # a rule that errs needs one request more now and then
        engine = Listening()
        searcher = make(task, engine=engine, seed=number, fill=CAPACITY, **options)  # type: ignore[call-arg]
        searcher.gate, searcher.budget.trained = LinkerLike(task), 10
        drive(searcher, 30)
        assert searcher.trained == 10
        assert len({request.messages for request in engine.asked}) == len(engine.asked)
        first = {request.talk: request for request in reversed(engine.asked) if request.role != "repair"}
        seen: set[str] = set()
        for talk in sorted(first):
            assert talk == 1 or known(first[talk]) - seen
            seen |= known(first[talk])
        tokens += searcher.spent.tokens
    assert tokens / 3 <= (12_000 if form == "two roles" else 3_000)


def test_candidates_under_way_are_shown_as_such(task: Task) -> None:
    engine = Scripted(lambda request: lines(*(f"c{8 + 4 * request.talk + n}" for n in range(2))), instant=True)
    searcher = LLMSearch(task, engine=engine, specs_per_call=2)
    ask(searcher, "a")
    ask(searcher, "b")
    searcher.on_trial_complete("a", result(searcher, "a"))
    ask(searcher, "c")
    text = engine.asked[1].messages[-1].content
    assert "#1 c12 | " in text and "#2 c13 | under way | expected RAM" in text


def test_it_waits_for_as_many_outcomes_as_it_should_but_not_for_what_cannot_come(task: Task) -> None:
    engine = Scripted(lambda request: lines(*(f"c{4 * request.talk + n}" for n in range(4))), instant=True)
    searcher = LLMSearch(task, engine=engine, ask_after=3)
    trials = [str(number) for number in range(4)]
    for trial in trials:
        ask(searcher, trial)
    for trial in trials[:2]:
        searcher.on_trial_complete(trial, result(searcher, trial))
        assert searcher.suggest("next") is None and len(engine.asked) == 1
    searcher.on_trial_complete(trials[2], result(searcher, trials[2]))
    assert isinstance(searcher.suggest("next"), dict) and len(engine.asked) == 2
    lonely = LLMSearch(task, engine=engine, specs_per_call=1, ask_after=3)
    drive(lonely, 3)  # one candidate at a time: three outcomes would never come together
    assert lonely.trained == 3


def test_idle_slots_are_filled_by_a_free_proposer_and_wait_without_one(task: Task) -> None:
    for fill, proposers in ((CAPACITY, ["capacity", "capacity"]), (None, [])):
        searcher = LLMSearch(task, engine=SimulatedEngine(seconds=5), fill=fill)
        for trial in ("a", "b"):
            searcher.suggest(trial)
        assert [candidate.proposer for candidate, _ in searcher.live.values()] == proposers
        searcher.close()


def test_a_filler_that_asks_an_engine_is_refused(task: Task) -> None:
    with pytest.raises(ConfigError, match="fill: 'llm_memory' asks an engine"):
        LLMSearch(task, fill=Plugin(name="llm_memory"))


def test_a_near_miss_and_a_repeat_are_mended_without_asking(task: Task) -> None:
    engine = Scripted(lambda request: lines("c20 r20 d40 r40 r24", "c8", "c8"), instant=True)
    searcher = LLMSearch(task, engine=engine, specs_per_call=3)
    searcher.gate, searcher.budget.trained = LinkerLike(task), 3
    drive(searcher, 9)
    records = {record.candidate.number: record for record in searcher.repository.records}
    assert [records[number].status for number in (1, 2, 3)] == ["infeasible", "ok", "duplicate"]
    mended = [
        (record.candidate.proposer, record.candidate.origin) for record in records.values() if record.candidate.origin
    ]
    assert sorted(mended) == [("fix", 1), ("morph", 3)]
    assert all(records[number].status == "ok" for number in (4, 5)) and len(engine.asked) == 1
    assert (
        records[4].cost.tokens == 0
        and records[4].candidate.parent == records[records[4].candidate.origin].candidate.hash
    )


def test_without_mending_both_are_records_and_nothing_else(task: Task) -> None:
    engine = Scripted(lambda request: lines("c8", "c8", f"c{8 + request.talk}"), instant=True)
    searcher = LLMSearch(task, engine=engine, specs_per_call=3, mend=0)
    drive(searcher, 4)
    assert all(record.candidate.talk for record in searcher.repository.records)


@pytest.mark.parametrize("on_stall", ["end", "fill"])
def test_an_engine_that_repeats_itself_gets_warmer_and_is_given_up(task: Task, on_stall: str) -> None:
    engine = Scripted(lambda request: lines("c8"), instant=True)
    options = {"mend": 0, "stall": 4, "on_stall": on_stall, "fill": CAPACITY, "specs_per_call": 1}
    searcher = LLMSearch(task, engine=engine, **options)
    searcher.budget.trained = 5
    drive(searcher, 9)
    assert [request.temperature for request in engine.asked] == [0, 0, 0.2, 0.4, 0.6]
    assert len({request.seed for request in engine.asked}) == 5
    assert searcher.proposer.gave_up == "the engine proposed nothing new in 4 answers in a row"
    assert searcher.trained == (1 if on_stall == "end" else 5)


def test_genius_is_not_stalled_and_its_prompt_stays_short(cells: Task) -> None:
    engine = Scripted(lambda request: json.dumps({"operations": ["skip_connect"] * 6}), instant=True)
    searcher = GeniusSearch(cells, engine=engine)
    searcher.budget.trained, searcher.budget.proposals = 12, 60
    for number in range(12):
        config = ask(searcher, f"t{number}")
        if not isinstance(config, dict):
            break
        searcher.on_trial_complete(f"t{number}", {"val_accuracy": 0.5})
    distinct = {record.candidate.hash for record in searcher.repository.records if record.status == "ok"}
    assert len(distinct) == searcher.trained >= 8  # each repeat became another cell
    assert len(engine.asked[-1].messages[-1].content) < 4_000
    assert searcher.gave_up.startswith("the engine proposed nothing new in 8 answers")


def slow_run(searcher: TuneSearcher, order: Random) -> None:
    """Train two at a time; how long anything takes is up to `order`."""
    deadline = time.monotonic() + 120
    for step in range(1_000_000):
        assert time.monotonic() < deadline, "the run does not end"
        if len(searcher.live) < 2 and searcher.suggest(f"t{step}") == "FINISHED":
            return
        if searcher.live and order.random() < 0.3:
            trial = order.choice(list(searcher.live))
            accuracy = (searcher.live[trial][0].number * 37 % 100) / 100
            searcher.on_trial_complete(trial, {"val_accuracy": accuracy})
        time.sleep(order.uniform(0, 0.002))


def story(searcher: TuneSearcher) -> list[str]:
    records = sorted(searcher.repository.records, key=lambda record: record.candidate.number)
    return [record.model_dump_json(exclude={"finished_at_s"}) for record in records]


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_replay_repeats_what_was_proposed_without_asking(task: Task, tmp_path: Path, form: str, seed: int) -> None:
    make, options = FORMS[form]

    def run(engine: Engine, order: int) -> TuneSearcher:
        searcher = make(task, seed=seed, engine=engine, fill=CAPACITY, **options)  # type: ignore[call-arg]
        searcher.gate, searcher.budget.trained = LinkerLike(task), 12
        slow_run(searcher, Random(order))
        return searcher

    simulated = SimulatedEngine(seconds=0.01, errors=0.3)
    first = run(LoggingEngine(simulated, tmp_path / "llm" / "calls.jsonl"), seed)
    second = run(ReplayEngine(path=tmp_path), seed + 100)
    assert story(first) == story(second)
    assert first.trained == 12 and any(not record.candidate.talk for record in first.repository.records)


def test_what_was_mended_before_a_kill_is_not_mended_again(task: Task, tmp_path: Path) -> None:
    engine = Scripted(lambda request: lines("c8", "c8", f"c{10 + request.talk}"), instant=True)
    killed = LLMSearch(task, engine=engine, specs_per_call=3)
    killed.repository = Repository(tmp_path / "journal.jsonl")
    drive(killed, 3)
    resumed = LLMSearch(task, engine=engine, specs_per_call=3)
    resumed.replay(Repository(tmp_path / "journal.jsonl"))
    drive(resumed, 3, first=10)
    origins = [record.candidate.origin for record in resumed.repository.records if record.candidate.origin]
    assert origins and len(origins) == len(set(origins))


def test_cells_are_proposed_by_all_three_and_none_twice(cells: Task) -> None:
    for name in ("llm", "llm_memory", "genius"):
        engine = SimulatedEngine()
        proposer = pick_proposer(Plugin(name=name), cells, seed=1, engine=engine)
        searcher = TuneSearcher(proposer)
        searcher.budget.trained = 10
        for number in range(10):
            config = ask(searcher, f"t{number}")
            good = config["cell"]["operations"].count("nor_conv_3x3")
            searcher.on_trial_complete(f"t{number}", {"val_accuracy": 0.5 + good / 20})
        assert searcher.trained == 10


def test_blind_names_are_for_cells_alone(task: Task, cells: Task) -> None:
    LLMSearch(cells, blind_names=True)
    with pytest.raises(ConfigError, match="blind_names hides the names of cells"):
        LLMSearch(task, blind_names=True)
    with pytest.raises(ConfigError, match="compact form only"):
        LLMSearch(cells, notation="json")


class TestSimulatedEngine:
    def test_it_reads_rows_and_the_json_of_the_papers(self) -> None:
        told = "#3 c16 r16 | 98.10 ±1.6 | 4.4 | 34.7 | #1: +r16: +1\n#4 c8 | infeasible: flash 8 of 9 over\n"
        assert [tuple(row) for row in read_rows(told)] == [("c16 r16", 98.1, 34.7, 3), ("c8", None, None, 4)]
        told = '{"backbone": [{"type": "conv", "out_channels": 8}]}\n{"accuracy": 0.9, "flash_bytes": 2048}'
        assert [tuple(row) for row in read_rows(told)] == [("c8", 90.0, 2.0, 0)]

    def test_skill_shows(self, task: Task) -> None:
        def best(skill: float) -> float:
            found = []
            for seed in range(4):
                searcher = LLMSearch(task, seed=seed, engine=SimulatedEngine(skill=skill, errors=0), ask_after=3)
                searcher.gate, searcher.budget.trained = LinkerLike(task), 12
                drive(searcher, 20)
                found.append(max(record.accuracy for record in searcher.repository.records))
            return sum(found)

        assert best(1.0) > best(0.0)

    def test_equal_requests_get_equal_answers_at_temperature_0(self, task: Task) -> None:
        request = LLMSearch(task).proposer.preview()[0].replace(temperature=0.0)
        engine = SimulatedEngine()
        one, other = engine.complete([request, request.replace(seed=request.seed + 1)])
        assert one.text == other.text and one.prompt_tokens == pieces("\n".join(m.content for m in request.messages))
