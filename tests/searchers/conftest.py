from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record, TrainingSummary
from automcu_ray.testing.tasks import make_task, make_tight_task
from searchers.gate.prefilter import Prefilter
from searchers.proposer import SearchState
from searchers.tune_searcher import TuneSearcher


@pytest.fixture
def task() -> Task:
    return make_task()


@pytest.fixture
def tight_task() -> Task:
    """Limits that a searcher soon runs into."""
    return make_tight_task()


@pytest.fixture
def cells(task: Task) -> Task:
    """The task whose candidates are cells in a table."""
    return task.replace(form="cell")


def state(task: Task, *, seed: int = 0, **about: Any) -> SearchState:
    """What a proposer is told when it is asked."""
    return SearchState(rng=Random(seed), prefilter=Prefilter(task), **about)


def trained(candidate: Candidate, accuracy: float, **sizes: int | None) -> Record:
    report = FeasibilityReport(feasible=True, backend="x", rung=Rung.LINK, **sizes)
    return Record(candidate=candidate, status="ok", feasibility=report, training=TrainingSummary(val_accuracy=accuracy))


def refused(candidate: Candidate, *violations: Violation, **sizes: int | None) -> Record:
    report = FeasibilityReport(feasible=False, backend="x", rung=violations[0].rung, violations=violations, **sizes)
    return Record(candidate=candidate, status="infeasible", reason="x", feasibility=report)


def train_cells(searcher: TuneSearcher, trials: int, accuracy: Callable[[list[str]], float]) -> list[Record]:
    """The records after some trials, one after the other, by what their cells' operations are worth."""
    for number in range(trials):
        config = searcher.suggest(f"t{number}")
        assert isinstance(config, dict)
        searcher.on_trial_complete(f"t{number}", {"val_accuracy": accuracy(config["cell"]["operations"])})
    return searcher.repository.records
