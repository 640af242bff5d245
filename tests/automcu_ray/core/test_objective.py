"""What ranks networks where the cheapest is sought, worked out by hand."""

import math

import pytest

from automcu_ray.core.feasibility import FeasibilityReport, Rung
from automcu_ray.core.objective import Aim
from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.record import Record, TrainingSummary, best, pareto_front

AIM = Aim(objective="instructions", floor=0.98)


def record(number: int, accuracy: float, instructions: int | None, aim: Aim | None = AIM, flash: int = 10) -> Record:
    sizes = {"ram_bytes": 10, "flash_bytes": flash, "instructions": instructions}
    report = FeasibilityReport(feasible=True, backend="x", rung=Rung.EMULATE, **sizes)
    training = TrainingSummary(val_accuracy=accuracy)
    return Record(candidate=Candidate(number=number), status="ok", feasibility=report, training=training, aim=aim)


def test_below_the_floor_accuracy_ranks_and_from_it_on_the_cost() -> None:
    assert AIM.proxy_floor == pytest.approx(0.94)  # a proxy may be wrong three times as often
    assert record(1, 0.90, 1000).score == pytest.approx(-0.04)
    assert record(1, 0.95, 10**6).score == pytest.approx(1 - 6 / 12)
    assert record(1, 0.99, 10**3).score == pytest.approx(1 - 3 / 12)
    assert record(1, 0.99, None).score == 0.0
    assert AIM.score(0.97, record(1, 0.97, 10).feasibility, proxy=False) == pytest.approx(-0.01)
    assert not record(1, math.nan, 10).scored


def test_the_best_is_the_cheapest_that_is_accurate_enough() -> None:
    records = [record(1, 0.99, 4000), record(2, 0.95, 2000), record(3, 0.93, 10), record(4, 0.95, 3000)]
    assert best(records) == records[1]
    assert best(records[2:3]) == records[2]  # none is accurate enough
    assert best([one.replace(aim=None) for one in records]).candidate.number == 1  # type: ignore[union-attr]


def test_instructions_count_on_the_front_where_all_know_theirs() -> None:
    slow, fast = record(1, 0.99, 4000, None), record(2, 0.98, 2000, None, flash=20)
    assert pareto_front([slow, fast]) == [slow, fast]
    assert pareto_front([slow, fast, record(3, 0.5, None, None, flash=9)])[0] == slow
    assert fast not in pareto_front([slow, fast, record(3, 0.5, None, None, flash=9)])
