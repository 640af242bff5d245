"""Who becomes a finalist, where accuracy after one epoch is not to be trusted alone."""

import pytest

from automcu_ray.core.feasibility import FeasibilityReport, Rung
from automcu_ray.core.objective import Aim
from automcu_ray.core.training_recipe import RankedBy
from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.finalist_selection import rank_for_finals
from automcu_ray.records.record import Record, TrainingSummary


def record(number: int, accuracy: float, loss: float, parameters: int | None, ranked_by: RankedBy = "loss") -> Record:
    return Record(
        candidate=Candidate(number=number),
        status="ok",
        feasibility=FeasibilityReport(feasible=True, backend="x", rung=Rung.LINK, parameters=parameters),
        training=TrainingSummary(val_accuracy=accuracy, train_loss=loss, ranked_by=ranked_by),
    )


def numbers(records: list[Record]) -> list[int]:
    return [found.candidate.number for found in rank_for_finals(records)]


def test_by_loss_the_sum_of_three_ranks_decides() -> None:
    records = [
        record(1, 0.40, 1.5, 10),  # ranks 1 + 3 + 1
        record(2, 0.50, 1.6, 30),  # ranks 2 + 2 + 3
        record(3, 0.60, 1.7, 20),  # ranks 3 + 1 + 2
    ]
    assert numbers(records) == [2, 3, 1]


def test_where_the_cheapest_is_sought_it_comes_first_and_promise_orders_the_others() -> None:
    aim = Aim(objective="ram", floor=0.8)  # a proxy's is 0.4
    records = [record(1, 0.30, 1.5, 10), record(2, 0.35, 1.6, 30), record(3, 0.39, 1.7, 20), record(4, 0.41, 1.9, 5)]
    assert numbers([one.replace(aim=aim) for one in records]) == [4, 2, 3, 1]


def test_by_accuracy_nothing_else_counts_and_the_earlier_of_equals_leads() -> None:
    found = [(1, 0.4, 1.5, 90), (2, 0.6, 1.7, 10), (3, 0.6, 1.6, 20)]
    assert numbers([record(*one, ranked_by="accuracy") for one in found]) == [2, 3, 1]


@pytest.mark.parametrize("status", ["failed", "infeasible", "duplicate"])
def test_what_was_not_trained_is_not_among_them(status: str) -> None:
    assert numbers([Record.model_validate({"candidate": {"number": 1}, "status": status})]) == []


def test_what_diverged_or_was_not_counted_takes_nothing_from_the_others() -> None:
    sound = [record(1, 0.40, 1.7, 10), record(2, 0.50, 1.5, None), record(3, 0.60, 1.4, 20)]
    assert numbers([*sound, record(4, float("nan"), 1.0, 90)]) == [3, 2, 1]


def test_parameters_that_nobody_counted_decide_nothing() -> None:
    assert numbers([record(1, 0.4, 1.7, None), record(2, 0.5, 1.5, None)]) == [2, 1]
