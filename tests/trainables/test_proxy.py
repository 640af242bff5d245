"""The proxy trial, without a cluster: what it reports, and that nothing of one candidate reaches the next."""

import time
from collections.abc import Iterator
from typing import Any

from automcu_ray.protocol import Protocol
from automcu_ray.record import TrainingSummary
from automcu_ray.task import Task
from trainables.datasets.digits import digits
from trainables.loop import Epoch
from trainables.proxy import ProxyTrainable, candidate_seed

GOOD = {"number": 4, "spec": {"backbone": [{"type": "conv", "out_channels": 4}]}}
BAD = {"number": 5, "spec": {"backbone": [{"type": "max_pool", "kernel_size": 8}, {"type": "max_pool"}]}}


def make(task: Task, config: dict[str, Any], epochs: int = 2) -> ProxyTrainable:
    data = digits()
    trainable = object.__new__(ProxyTrainable)  # Tune's constructor wants a cluster's logger
    trainable.setup(config, task, Protocol(epochs=epochs), data.train, data.val, seed=1)
    return trainable


def run(trainable: ProxyTrainable) -> list[dict[str, Any]]:
    results = [trainable.step()]
    while not results[-1].get("done"):
        results.append(trainable.step())
    return results


def test_an_epoch_a_step_and_a_summary_at_the_end(digits_task: Task) -> None:
    first, last = run(make(digits_task, GOOD))
    assert (first["epoch"], "training" in first) == (1, False)
    summary = TrainingSummary.model_validate(last["training"])
    assert (summary.epochs, summary.seed) == (2, candidate_seed(1, 4))
    assert last["val_accuracy"] == summary.val_accuracy


def test_a_reused_worker_gives_what_a_fresh_one_gives(digits_task: Task) -> None:
    fresh = run(make(digits_task, GOOD))[-1]["val_accuracy"]
    reused = make(digits_task, {**GOOD, "number": 9})
    run(reused)
    assert reused.reset_config(GOOD)
    assert run(reused)[-1]["val_accuracy"] == fresh


def test_what_cannot_be_built_is_a_result_with_a_reason(digits_task: Task) -> None:
    (result,) = run(make(digits_task, BAD))
    assert "layer_2.kernel_size" in result["failure"]
    assert (result["val_accuracy"], result["seconds"]) == (float("-inf"), 0.0)


def test_a_training_that_fails_tells_the_seconds_it_took(digits_task: Task) -> None:
    trainable = make(digits_task, GOOD, epochs=3)
    trainable.step()
    trained_s = trainable.job.seconds

    def breaks() -> Iterator[Epoch]:
        time.sleep(0.05)
        raise FloatingPointError("diverged")
        yield

    trainable.epochs = trainable.job._timed(breaks())
    result = trainable.step()
    assert "diverged" in result["failure"] and result["seconds"] >= trained_s + 0.05
