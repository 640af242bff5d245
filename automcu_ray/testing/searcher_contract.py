"""What every searcher keeps to, whatever it proposes. Inherit, and say how to make one."""

import math
import pickle
import time
from abc import abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ray.tune.search import Searcher

from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.records.journal import Repository
from automcu_ray.testing.tasks import make_task, make_tight_task
from searchers.tune_searcher import TuneSearcher

PATIENCE_S = 240.0


def result(searcher: TuneSearcher, trial: str) -> dict[str, Any]:
    """A made-up accuracy that grows with capacity."""
    report = searcher.live[trial][1]
    accuracy = 1 - math.exp(-(report.parameters or 0) / 10_000)
    return {"val_accuracy": accuracy, "training/val_accuracy": accuracy, "training/seconds": 1.0}


def ask(searcher: TuneSearcher, trial: str) -> Any:
    """Ask until there is an answer, as Tune does."""
    deadline = time.monotonic() + PATIENCE_S
    while (config := searcher.suggest(trial)) is None:
        assert time.monotonic() < deadline, "no proposal came"
        time.sleep(0.002)
    return config


def drive(searcher: TuneSearcher, trials: int, first: int = 0) -> None:
    """Train that many candidates, one after the other; fewer if the searcher says that it is finished."""
    for number in range(first, first + trials):
        trial = f"trial_{number}"
        if ask(searcher, trial) == Searcher.FINISHED:
            return
        searcher.on_trial_complete(trial, result(searcher, trial))


def too_large(task: Task) -> Candidate:
    """No board of the tests has room for 2 million weights, nor a tight one for a cell of convolutions alone."""
    if task.form == "cell":
        return task.cells.candidate(["nor_conv_3x3"] * 6)
    layer = {"type": "conv", "out_channels": 480}
    return task.space.candidate(ArchitectureSpec.model_validate({"backbone": [layer, layer]}))


def story(searcher: TuneSearcher) -> list[tuple[Any, ...]]:
    """What was proposed, and what became of it, without times."""
    records = sorted(searcher.repository.records, key=lambda record: record.candidate.number)
    return [(r.candidate.number, r.candidate.hash, r.status, r.candidate.parent) for r in records]


class SearcherContract:
    """`make` returns a searcher for the fixtures `task`, and `tight_task`, whose limits make refusals likely.

    A subclass may replace both fixtures, where it wants cells, say.
    `sequential`: it proposes nothing while a trial is under way.
    """

    sequential = False

    @abstractmethod
    def make(self, task: Task, seed: int) -> TuneSearcher: ...

    @pytest.fixture
    def task(self) -> Task:
        return make_task()

    @pytest.fixture
    def tight_task(self) -> Task:
        return make_tight_task()

    def test_same_seed_and_results_give_the_same_proposals(self, task: Task) -> None:
        first, second = self.make(task, 3), self.make(task, 3)
        drive(first, 5)
        drive(second, 5)
        assert story(first) == story(second)

    def test_another_seed_gives_other_proposals(self, task: Task) -> None:
        first, second = self.make(task, 3), self.make(task, 4)
        drive(first, 5)
        drive(second, 5)
        assert story(first) != story(second)

    def test_no_two_candidates_have_one_number(self, task: Task) -> None:
        searcher = self.make(task, 0)
        drive(searcher, 8)
        numbers = [record.candidate.number for record in searcher.repository.records]
        assert max(Counter(numbers).values()) == 1
        assert sorted(searcher.repository.proposed) == list(range(1, len(searcher.repository.proposed) + 1))

    def test_refused_candidates_are_records_and_never_trials(self, tight_task: Task) -> None:
        searcher = self.make(tight_task, 0)
        searcher.points_to_evaluate([too_large(tight_task)])  # whoever knows the bound proposes nothing beyond it
        searcher.budget.proposals = 30
        handed_out = []
        for number in range(30):
            config = ask(searcher, f"trial_{number}")
            if config == Searcher.FINISHED:
                break
            handed_out.append(config["number"])
            searcher.on_trial_complete(f"trial_{number}", result(searcher, f"trial_{number}"))
        refused = [record for record in searcher.repository.records if record.status != "ok"]
        assert refused
        assert all(record.reason for record in refused)
        assert not {record.candidate.number for record in refused} & set(handed_out)

    def test_a_duplicate_is_a_record_and_is_not_trained_again(self, task: Task) -> None:
        searcher = self.make(task, 0)
        drive(searcher, 1)
        known = next(record for record in searcher.repository.records if record.status == "ok").candidate
        again = known.model_copy(update={"number": 0})
        searcher.points_to_evaluate([again])
        drive(searcher, 3, first=1)
        records = searcher.repository.records
        repeated = [record for record in records if record.candidate.hash == known.hash]
        assert [record.status for record in repeated] == ["ok", "duplicate"]

    def test_the_budget_of_trained_candidates_is_met_exactly(self, task: Task) -> None:
        searcher = self.make(task, 0)
        searcher.budget.trained = 4
        drive(searcher, 50)
        assert searcher.exhausted
        assert searcher.suggest("one_more") == Searcher.FINISHED
        assert [record.status for record in searcher.repository.records].count("ok") == 4

    def test_a_failed_trial_is_a_record_and_the_search_goes_on(self, task: Task) -> None:
        searcher = self.make(task, 0)
        ask(searcher, "broken")
        searcher.on_trial_complete("broken", None, error=True)
        drive(searcher, 2)
        assert Counter(r.status for r in searcher.repository.records)["failed"] == 1
        assert searcher.trained == 2

    def test_a_journal_replayed_neither_repeats_nor_loses_a_candidate(self, task: Task, tmp_path: Path) -> None:
        journal = tmp_path / "journal.jsonl"
        killed = self.make(task, 0)
        killed.repository = Repository(journal)
        drive(killed, 3)
        ask(killed, "in_flight_when_killed")
        done = {record.candidate.number for record in killed.repository.records}
        lost = set(killed.repository.proposed) - done

        resumed = self.make(task, 0)
        resumed.budget.trained = 8
        resumed.replay(Repository(journal))
        drive(resumed, 50, first=100)
        numbers = [record.candidate.number for record in Repository(journal).records]
        assert lost and lost <= set(numbers)
        assert max(Counter(numbers).values()) == 1
        assert resumed.trained == 8

    def test_a_resumed_run_proposes_what_the_whole_run_would_have(self, task: Task, tmp_path: Path) -> None:
        whole, part, resumed = (self.make(task, 0) for _ in range(3))
        for searcher in (whole, part, resumed):
            searcher.lookahead = 1
        part.repository = Repository(tmp_path / "journal.jsonl")
        drive(whole, 6)
        drive(part, 3)
        resumed.replay(Repository(tmp_path / "journal.jsonl"))
        drive(resumed, 3, first=3)
        assert story(resumed) == story(whole)

    def test_save_and_restore_keep_live_trials_and_records(self, task: Task, tmp_path: Path) -> None:
        before, after = self.make(task, 0), self.make(task, 0)
        drive(before, 2)
        ask(before, "live")
        outcome = result(before, "live")
        before.save(str(tmp_path / "state"))
        after.restore(str(tmp_path / "state"))
        after.on_trial_complete("live", outcome)
        after.on_trial_complete("unknown", outcome)  # normal after a restore
        drive(after, 3, first=10)
        numbers = [record.candidate.number for record in after.repository.records]
        assert after.trained == 6
        assert max(Counter(numbers).values()) == 1

    def test_pickles_while_candidates_are_on_their_way(self, task: Task) -> None:
        searcher = self.make(task, 0)
        drive(searcher, 2)
        searcher.suggest("live")
        copy = pickle.loads(pickle.dumps(searcher))
        if self.sequential:
            copy.on_trial_complete("live", result(copy, "live"))
        drive(copy, 2, first=10)
        assert copy.trained == 4 + self.sequential
