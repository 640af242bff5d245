"""The ablation that hears the gate after training: what cannot be deployed is trained, and counts as refused."""

from pathlib import Path

from automcu_ray.problem.target import Constraints
from automcu_ray.problem.task import Task
from automcu_ray.records.journal import Repository
from automcu_ray.records.record import Record
from searchers.random import Random
from searchers.stopping import Budget
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import RandomSearch


def search(task: Task, *, after: bool) -> TuneSearcher:
    """A search of four trained candidates within limits that half of its proposals break."""
    tight = task.model_copy(update={"constraints": Constraints(ram_kb=3, flash_kb=16)})
    searcher = TuneSearcher(Random(tight, seed=1), budget=Budget(trained=4, proposals=100), trains_refused=after)
    for number in range(200):
        asked = searcher.suggest(f"t{number}")
        if isinstance(asked, dict):
            searcher.on_trial_complete(f"t{number}", {"val_accuracy": 0.5})
        elif asked is not None:
            break
    return searcher


def refused(records: list[Record]) -> list[Record]:
    return [record for record in records if record.status == "infeasible"]


def test_before_training_a_refusal_costs_no_trial(digits_task: Task) -> None:
    found = search(digits_task, after=False).repository.records
    assert sum(record.status == "ok" for record in found) == 4 and refused(found)
    assert all(record.training is None for record in refused(found))


def test_after_training_a_refusal_has_used_up_a_trial(digits_task: Task) -> None:
    searcher = search(digits_task, after=True)
    found = searcher.repository.records
    assert searcher.trained == len(found) == 4 and refused(found)
    assert all(record.training is not None and "more than the limit" in record.reason for record in refused(found))
    assert not any(record.scored for record in refused(found))


def test_a_resumed_search_knows_what_was_trained_in_vain(digits_task: Task, tmp_path: Path) -> None:
    first = search(digits_task, after=True)
    second = RandomSearch(digits_task, seed=1)
    second.budget.trained = 4
    repository = Repository(tmp_path / "journal.jsonl")
    repository.propose(*first.repository.proposed.values())
    for record in first.repository.records:
        repository.add(record)
    second.replay(Repository(tmp_path / "journal.jsonl"))
    assert second.trained == 4 and second.exhausted
