"""Print how well waiting for a language model and training overlap: wall time against the longer of the two alone.

The engine and the training are made up and only sleep; searcher, gate and Ray Tune's loop are the real ones.
"""

import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
import ray
from ray import tune

from automcu_ray.run.plan import prepare
from automcu_ray.runtime.config import compose
from searchers.engines.base import Engine, Reply, Request
from searchers.gate.gate import FeasibilityCallback
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import LLMSearch

CANDIDATES = 80
ENGINE_S, TRAINING_S, SLOTS, SPECS_PER_CALL = 4.0, 2.0, 2, 4


class SlowEngine(Engine):
    """Takes its time over each request, then answers with networks that all fit and are all different."""

    name = model = "slow"

    def __init__(self) -> None:
        self.came_s: list[float] = []  # when each request came

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        self.came_s.append(time.monotonic())
        time.sleep(ENGINE_S)
        return [Reply(text=json.dumps({"candidates": self._networks(request)})) for request in requests]

    def _networks(self, request: Request) -> list[dict[str, Any]]:
        first = SPECS_PER_CALL * request.talk
        return [{"backbone": [{"type": "conv", "out_channels": first + i}]} for i in range(SPECS_PER_CALL)]


class Sleeper(tune.Trainable):  # type: ignore[misc]
    """Takes its time over each candidate and reports a made-up accuracy."""

    def setup(self, config: dict[str, Any]) -> None:
        pass

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        return True

    def step(self) -> dict[str, Any]:
        time.sleep(TRAINING_S)
        return {"val_accuracy": 0.5, "done": True}


def search(candidates: int, folder: Path) -> tuple[TuneSearcher, SlowEngine]:
    """Run a search to its end as the supervisor does; return the searcher and what its engine noted."""
    engine = SlowEngine()
    task = prepare(compose({"searcher": "random", "backend": "analytic"})).task
    searcher = LLMSearch(task, engine=engine, specs_per_call=SPECS_PER_CALL)
    searcher.budget.trained = candidates
    tune.Tuner(
        tune.with_resources(Sleeper, {"cpu": 1}),
        tune_config=tune.TuneConfig(
            num_samples=-1, search_alg=searcher, max_concurrent_trials=SLOTS, reuse_actors=True
        ),
        run_config=tune.RunConfig(
            name="overlap",
            storage_path=str(folder),
            verbose=0,
            callbacks=[FeasibilityCallback(searcher)],
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    ).fit()
    return searcher, engine


def show(searcher: TuneSearcher, engine: SlowEngine) -> None:
    """Print wall time, from the first request to the last result, beside what engine and training need alone."""
    on_clock_s = time.time() - time.monotonic()
    ends_s = [record.finished_at_s - on_clock_s - engine.came_s[0] for record in searcher.repository.records]
    engine_s, training_s = len(ends_s) / SPECS_PER_CALL * ENGINE_S, len(ends_s) / SLOTS * TRAINING_S
    longer_s = max(engine_s, training_s)
    print(
        f"{len(ends_s)} candidates: engine alone {engine_s:.0f} s ({len(engine.came_s)} calls), training alone on "
        f"{SLOTS} slots {training_s:.0f} s, both {ends_s[-1]:.1f} s: {ends_s[-1] / longer_s:.2f} times the longer one"
    )
    first_s = ends_s[SLOTS - 1]
    steady = (ends_s[-1] - first_s) / (longer_s * (1 - SLOTS / len(ends_s)))
    print(
        f"after the first answer, the start of the workers and the first results ({first_s:.1f} s): {steady:.2f} times"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="automcu-bench-") as temporary:
        ray.init(num_cpus=SLOTS, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        show(*search(CANDIDATES, Path(temporary)))
        ray.shutdown()
