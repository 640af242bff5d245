"""The line that counts: the same after a resume, and no longer to write after many records."""

import io
from types import SimpleNamespace

from rich.console import Console

from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.journal import Repository
from automcu_ray.records.record import Record, Status, TrainingSummary
from automcu_ray.reports.progress import Progress, describe


def record(number: int, status: Status, accuracy: float | None = None) -> Record:
    training = None if accuracy is None else TrainingSummary(val_accuracy=accuracy)
    return Record(candidate=Candidate(number=number), status=status, training=training)


def test_counts_what_a_resumed_run_has_already_and_the_earlier_of_equals_leads(digits_task: Task) -> None:
    repository = Repository()
    searcher = SimpleNamespace(repository=repository, trained=1, budget=SimpleNamespace(trained=4), live={})
    repository.add(record(1, "ok", 0.5))
    progress = Progress(searcher, digits_task, Console(file=io.StringIO()))
    for found in (record(2, "failed"), record(3, "ok", 0.75), record(4, "ok", 0.75), record(5, "failed")):
        repository.add(found)
    searcher.trained = 3
    progress.on_step_begin(0, [])
    assert progress.summary().startswith("trained 3/4 · 2 failed · 3 ok · best 0.7500 (#3) · about")


def test_a_search_that_ranks_by_loss_shows_it(digits_task: Task) -> None:
    training = TrainingSummary(val_accuracy=0.5, train_loss=1.25, ranked_by="loss", seconds=2.0)
    found = Record(candidate=Candidate(number=7), status="ok", training=training)
    assert describe(found, digits_task) == "#7    ok                   accuracy 0.5000  loss 1.250  2.0 s"
