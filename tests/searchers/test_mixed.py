"""Several proposers in one run: shared records, shared budgets, and nobody waits for a slow engine."""

import pickle
import threading
from concurrent.futures import wait
from pathlib import Path
from random import Random

import pytest

from automcu_ray.config import Plugin
from automcu_ray.errors import ConfigError
from automcu_ray.record import Record
from automcu_ray.repository import Repository
from automcu_ray.target import Constraints
from automcu_ray.task import Task
from searchers.base import BaseSearcher
from searchers.engines.base import Engine, Reply, Request
from searchers.evolution import EvolutionSearch
from searchers.llm_memory import LLMMemorySearch
from searchers.mixed import MixedSearch, asking
from searchers.refusals import Refusals
from tests.contracts.searcher_contract import SearcherContract, ask, drive, story, too_large
from tests.searchers.test_llm_memory import Scripted, Threaded, answer_well, settle

EVOLUTION = Plugin.model_validate({"name": "evolution", "population": 3, "sample": 2, "start": 3})
RANDOM, LLM_MEMORY, CAPACITY = (Plugin(name=name) for name in ("random", "llm_memory", "capacity"))


def mixed(task: Task, *proposers: Plugin, seed: int = 0, engine: Engine | None = None) -> MixedSearch:
    return MixedSearch(task, seed=seed, engine=engine, proposers=proposers)


class Instant(Scripted):
    """Needs no thread, so that events keep their order."""

    instant = True


def proposers(searcher: BaseSearcher) -> list[str]:
    return [candidate.proposer for candidate in searcher.repository.proposed.values()]


class TestWithoutEngine(SearcherContract):
    def make(self, task: Task, seed: int) -> BaseSearcher:
        return mixed(task, EVOLUTION, RANDOM, CAPACITY, seed=seed)


class TestWithRules(SearcherContract):
    def make(self, task: Task, seed: int) -> BaseSearcher:
        return mixed(task, LLM_MEMORY, EVOLUTION, seed=seed)


class TestWithAnEngineThatTakesTime(SearcherContract):
    """One conversation at a time and no lookahead; who comes next still depends on the time it takes."""

    def make(self, task: Task, seed: int) -> BaseSearcher:
        slow = Plugin.model_validate({"name": "llm_memory", "parallel": 1})
        searcher = mixed(task, slow, EVOLUTION, seed=seed, engine=Threaded())
        searcher.lookahead = 1
        return searcher

    def test_same_seed_and_results_give_the_same_proposals(self, task: Task) -> None:
        pytest.skip("what an engine's answer comes before is a matter of time")

    def test_a_resumed_run_proposes_what_the_whole_run_would_have(self, task: Task, tmp_path: Path) -> None:
        pytest.skip("what an engine's answer comes before is a matter of time")


def test_every_proposer_is_asked_and_learns_from_every_record(task: Task) -> None:
    searcher = mixed(task, LLM_MEMORY, EVOLUTION, RANDOM)
    drive(searcher, 12)
    assert {"offline", "evolution", "random"} == set(proposers(searcher))
    llm, evolution = searcher.proposers["llm_memory"], searcher.proposers["evolution"]
    assert isinstance(llm, LLMMemorySearch) and isinstance(evolution, EvolutionSearch)
    assert llm.trained == evolution.trained == searcher.trained == 12
    trained = [record.candidate.number for record in searcher.repository.records if record.status == "ok"]
    assert [record.candidate.number for record in evolution.living] == trained[-3:]


def test_a_refusal_is_read_once_and_known_to_every_proposer(
    tight_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Record] = []
    learn = Refusals.learn

    def note(refusals: Refusals, record: Record) -> None:
        read.append(record)
        learn(refusals, record)

    monkeypatch.setattr(Refusals, "learn", note)
    first, again = (mixed(tight_task, EVOLUTION, RANDOM, CAPACITY) for _ in range(2))
    first.repository = Repository(tmp_path / "journal.jsonl")
    first.points_to_evaluate([too_large(tight_task)])
    drive(first, 6)
    assert read == first.repository.records
    again.replay(Repository(tmp_path / "journal.jsonl"))
    for searcher in (first, pickle.loads(pickle.dumps(first)), again):
        assert searcher.refusals.narrowest
        assert all(proposer.refusals is searcher.refusals for proposer in searcher.proposers.values())
        assert all(proposer.trained == searcher.trained == 6 for proposer in searcher.proposers.values())


def test_points_to_evaluate_come_first_and_teach_all(task: Task) -> None:
    searcher = mixed(task, EVOLUTION, RANDOM)
    points = [EvolutionSearch(task, seed=seed).propose() for seed in (8, 9)]
    searcher.points_to_evaluate([point.model_copy(update={"proposer": "points_to_evaluate"}) for point in points])
    drive(searcher, 4)
    assert proposers(searcher)[:2] == ["points_to_evaluate"] * 2
    assert searcher.proposers["evolution"].trained == 4
    assert sum(arm.pulls > 0 for arm in searcher.bandit.arms.values()) == 2  # points are nobody's pulls


def test_a_slow_engine_blocks_nobody_and_its_candidates_come_as_soon_as_they_are_there(task: Task) -> None:
    release, answered = threading.Event(), threading.Event()

    def slow(request: Request) -> str:
        release.wait(60)
        answered.set()
        return answer_well(request)

    searcher = mixed(task, LLM_MEMORY, EVOLUTION, engine=Scripted(slow))
    drive(searcher, 5)
    assert not answered.is_set() and set(proposers(searcher)) == {"evolution"}
    release.set()
    llm = asking(searcher)
    assert llm is not None
    wait([llm._running[0].future], timeout=60)
    drive(searcher, 3, first=5)  # up to two were in stock
    assert "llm_memory" in proposers(searcher)


def test_a_dead_engine_ends_its_own_proposals_only(task: Task) -> None:
    engine = Instant(lambda request: Reply(finish_reason="error", error="connection refused"))
    slow = Plugin.model_validate({"name": "llm_memory", "patience": 1})
    searcher = mixed(task, slow, EVOLUTION, engine=engine)
    searcher.trained_budget = 10
    drive(searcher, 20)
    assert (searcher.trained, searcher.gave_up) == (10, "")
    assert "failed 1 times in a row" in searcher.proposers["llm_memory"].gave_up


def test_when_all_gave_up_the_run_ends_and_says_why(task: Task) -> None:
    engine = Instant(lambda request: Reply(finish_reason="error", error="connection refused"))
    slow = Plugin.model_validate({"name": "llm_memory", "patience": 1, "backoff_s": 0.001})
    searcher = mixed(task, slow, engine=engine)
    settle(searcher, records=1)
    assert ask(searcher, "a") == "FINISHED"
    assert "connection refused" in searcher.gave_up


def test_used_up_tokens_end_the_engines_proposals_only(task: Task) -> None:
    engine = Instant(answer_well)  # 110 tokens a call
    searcher = mixed(task, LLM_MEMORY, EVOLUTION, engine=engine)
    searcher.token_budget, searcher.trained_budget = 100, 12
    drive(searcher, 20)
    assert searcher.trained == 12
    assert searcher.spent.tokens == 110  # one conversation of one call


def test_money_counts_as_the_time_that_it_would_buy(task: Task) -> None:
    searcher = mixed(task, EVOLUTION)
    drive(searcher, 1)
    record = searcher.repository.records[0]
    paid = record.model_copy(update={"cost": record.cost.model_copy(update={"usd": 0.5, "train_seconds": 2.0})})
    assert searcher._cost(paid) == pytest.approx(record.cost.seconds - 1.0 + 2.0 + 1800.0 + 1.0)


def test_conversations_go_on_after_the_last_one_of_the_journal(task: Task, tmp_path: Path) -> None:
    first, again = (mixed(task, LLM_MEMORY, EVOLUTION) for _ in range(2))
    first.repository = Repository(tmp_path / "journal.jsonl")
    drive(first, 8)
    again.replay(Repository(tmp_path / "journal.jsonl"))
    one, other = asking(first), asking(again)
    assert one is not None and other is not None and one.talks == other.talks > 0
    assert +again.under_way == +first.under_way and again.bandit.arms == first.bandit.arms


def test_cells_are_mixed_by_proposers_of_cells(task: Task) -> None:
    cells = task.model_copy(update={"form": "cell"})
    searcher = mixed(cells, CAPACITY, EVOLUTION)
    for number in range(8):
        config = searcher.suggest(f"t{number}")
        assert isinstance(config, dict) and "cell" in config
        searcher.on_trial_complete(f"t{number}", {"val_accuracy": number / 10})
    hashes = [candidate.hash for candidate in searcher.repository.proposed.values()]
    assert len(set(hashes)) == len(hashes)


def test_capacity_leaves_out_no_cell_because_others_proposed_too(task: Task) -> None:
    cells = task.model_copy(update={"form": "cell"})
    searcher = mixed(cells, RANDOM, CAPACITY)
    for number in range(9):
        searcher.suggest(f"t{number}")
        searcher.on_trial_complete(f"t{number}", {"val_accuracy": 0.5})
    found = [str(c.cell) for c in searcher.repository.proposed.values() if c.proposer == "capacity"]
    largest = [str(cell) for cell in cells.cells.by_capacity(Random(0))]
    assert len(found) > 2 and found == largest[: len(found)]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["llm_memory"], "searcher 'llm_memory' proposes a network, task 'digits' wants a cell"),
        (["llm", "llm_memory"], "one may ask an engine, found llm and llm_memory"),
        (["random", "random"], "found 'random' twice"),
        (["mixed"], "'mixed' cannot be one of its own proposers"),
        (["evolutoin"], "did you mean 'evolution'?"),
        ([], "name at least one searcher"),
    ],
)
def test_proposers_that_cannot_be(task: Task, names: list[str], words: str) -> None:
    wants = task if "llm" in names else task.model_copy(update={"form": "cell"})
    with pytest.raises(ConfigError) as caught:
        mixed(wants, *(Plugin(name=name) for name in names))
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_code_is_not_mixed_with_specs(task: Task) -> None:
    with pytest.raises(ConfigError, match="would write code"):
        mixed(task, EVOLUTION, Plugin.model_validate({"name": "llm_memory", "form": "code"}))


def test_whoever_gains_more_is_asked_more(task: Task) -> None:
    """Accuracy that only the candidates of one proposer raise."""
    searcher = mixed(task, RANDOM, EVOLUTION)
    searcher.lookahead = 1
    best = 0.5
    for number in range(40):
        ask(searcher, f"t{number}")
        ((candidate, _),) = searcher.live.values()
        best += 0.01 * (candidate.proposer == "evolution")
        accuracy = best if candidate.proposer == "evolution" else 0.4
        searcher.on_trial_complete(f"t{number}", {"val_accuracy": accuracy})
    records: list[Record] = searcher.repository.records
    asked = [record.candidate.proposer for record in records]
    assert asked.count("evolution") > 3 * asked.count("random") > 0


def test_same_records_give_the_same_story_whoever_is_told(task: Task) -> None:
    first, second = (mixed(task, LLM_MEMORY, EVOLUTION, RANDOM, seed=5) for _ in range(2))
    drive(first, 10)
    drive(second, 10)
    assert story(first) == story(second) and proposers(first) == proposers(second)


def test_once_nothing_can_fit_nobody_is_asked_and_what_was_ordered_still_comes(task: Task) -> None:
    release = threading.Event()

    def slow(request: Request) -> str:
        release.wait(60)
        return answer_well(request)

    tiny = task.model_copy(update={"constraints": Constraints(ram_kb=0.07, flash_kb=48)})  # less than image and answer
    engine = Scripted(slow)
    searcher = mixed(tiny, LLM_MEMORY, EVOLUTION, engine=engine)
    searcher.trained_budget, searcher.proposal_budget = 4, 400
    while not searcher.gave_up:
        assert searcher.suggest("t") is None
    proposed, ordered = len(searcher.repository.proposed), searcher.ordered
    for _ in range(5):
        assert searcher.suggest("t") is None  # it waits for what is being written, and asks nobody else
    assert ordered > 0 and len(searcher.repository.proposed) == proposed < 100
    release.set()
    assert ask(searcher, "t") == "FINISHED"
    assert len(searcher.repository.proposed) == proposed + ordered
    assert len({request.talk for request in engine.asked}) == ordered and "nothing can fit" in searcher.gave_up


def test_a_refusal_that_counts_after_training_does_so_for_its_proposers_too(tight_task: Task) -> None:
    alone, among = EvolutionSearch(tight_task, seed=0), mixed(tight_task, Plugin(name="evolution"))
    for searcher in (alone, among):
        searcher.trains_refused = True
        drive(searcher, 12)
    assert story(alone) == story(among)
    assert any(record.status == "infeasible" for record in among.repository.records)
