"""A searcher in someone's own script: an ordinary Ray Tune Searcher, budget and trainable of theirs."""

import os
from pathlib import Path
from typing import Any

import pytest

os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
from ray import tune

from automcu_ray.problem.task import Task
from searchers.gate.gate import FeasibilityCallback
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import LLMMemorySearch, RandomSearch


class Trainable(tune.Trainable):  # type: ignore[misc]
    """Reports an accuracy that grows with depth."""

    def setup(self, config: dict[str, Any]) -> None:
        self.config = config

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.config = new_config
        return True

    def step(self) -> dict[str, Any]:
        return {"val_accuracy": 1 - 1 / len(self.config["spec"]["backbone"]), "done": True}


pytestmark = pytest.mark.usefixtures("ray_cluster")


def tuner(searcher: TuneSearcher, folder: Path, num_samples: int) -> tune.Tuner:
    return tune.Tuner(
        Trainable,
        tune_config=tune.TuneConfig(
            search_alg=searcher, num_samples=num_samples, max_concurrent_trials=2, reuse_actors=True
        ),
        run_config=tune.RunConfig(
            storage_path=str(folder),
            verbose=0,
            name="run",
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )


@pytest.mark.parametrize("make", [RandomSearch, LLMMemorySearch])
def test_runs_in_a_users_own_tuner(make: type[TuneSearcher], digits_task: Task, tmp_path: Path) -> None:
    searcher = make(digits_task, seed=3)
    results = tuner(searcher, tmp_path, num_samples=5).fit()
    assert len(results) == 5 and results.num_errors == 0
    trained = [record for record in searcher.repository.records if record.status == "ok"]
    assert len({record.candidate.hash for record in trained}) == 5
    assert results.get_best_result("val_accuracy", "max").metrics["val_accuracy"] == max(r.score for r in trained)


def test_its_own_budget_ends_the_run(digits_task: Task, tmp_path: Path) -> None:
    searcher = RandomSearch(digits_task, seed=0)
    searcher.budget.trained = 4
    run = tuner(searcher, tmp_path, num_samples=-1)
    run._local_tuner._run_config.callbacks = [FeasibilityCallback(searcher)]
    assert len(run.fit()) == 4


def test_an_impossible_budget_ends_in_bounded_time(digits_task: Task, tmp_path: Path) -> None:
    limits = digits_task.constraints.model_copy(update={"ram_kb": 0.05})
    searcher = RandomSearch(digits_task.model_copy(update={"constraints": limits}), seed=0)
    searcher.budget.trained, searcher.budget.proposals = 4, 60
    results = tuner(searcher, tmp_path, num_samples=-1).fit()
    assert len(results) == 0
    assert {record.status for record in searcher.repository.records} <= {"infeasible", "duplicate"}
    assert len(searcher.repository.records) < 60 and "nothing can fit" in searcher.gave_up
