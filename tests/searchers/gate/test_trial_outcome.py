"""What a trial reported, whoever wrote the trainable."""

from typing import Any

import pytest

from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from searchers.tune_searchers import RandomSearch


def record(task: Task, result: dict[str, Any] | None, error: bool = False) -> Record:
    """What a searcher makes of a trial that ended so."""
    searcher = RandomSearch(task)
    searcher.suggest("a")
    searcher.on_trial_complete("a", result, error)
    return searcher.repository.records[-1]


def test_the_metric_alone_is_enough_and_what_nobody_knows_is_left_out(task: Task) -> None:
    found = record(task, {"val_accuracy": 0.5, "training/loss": 1.0, "training/seconds": 2.0, "time_total_s": 9.0})
    assert found.status == "ok" and found.training is not None
    assert (found.training.val_accuracy, found.training.seconds, found.training.epochs) == (0.5, 2.0, None)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"val_accuracy": None}, "val_accuracy: Input should be a valid number"),
        ({"val_accuracy": 0.5, "training/epochs": "many"}, "epochs: Input should be a valid integer"),
        ({"loss": 1.0}, "training ended with an error"),
        (None, "training ended with an error"),
        ({"failure": "too slow", "seconds": "x"}, "too slow"),
    ],
)
def test_what_cannot_be_read_is_a_failure_with_a_reason(task: Task, result: dict[str, Any] | None, reason: str) -> None:
    found = record(task, result)
    assert found.status == "failed" and reason in found.reason and found.training is None


def test_seconds_of_a_training_in_vain_are_counted(task: Task) -> None:
    assert record(task, {"failure": "diverged", "seconds": 3}).cost.train_seconds == 3.0
