"""The proxy trial, without a cluster: what it reports, and that nothing of one candidate reaches the next."""

import math
import mmap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.records.record import TrainingSummary
from trainables.datasets.digits import digits
from trainables.proxy import ProxyTrainable, candidate_seed
from trainables.training.loop import Epoch
from trainables.training.trainer import Trainer

pytestmark = pytest.mark.training

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


def breaks(error: Exception, seconds: float = 0.0) -> Iterator[Epoch]:
    time.sleep(seconds)
    raise error
    yield


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_an_epoch_a_step_and_a_summary_at_the_end(digits_task: Task) -> None:
    first, last = run(make(digits_task, GOOD))
    so_far = TrainingSummary.model_validate(first["training"])  # what a scheduler that stops it here would leave
    assert (first["epoch"], so_far.stopped_early, so_far.val_accuracy_float) == (1, True, first["val_accuracy"])
    summary = TrainingSummary.model_validate(last["training"])
    assert (summary.epochs, summary.seed) == (2, candidate_seed(1, 4))
    assert last["val_accuracy"] == summary.val_accuracy


def test_a_reused_worker_gives_what_a_fresh_one_gives(digits_task: Task) -> None:
    fresh = run(make(digits_task, GOOD))[-1]["val_accuracy"]
    reused = make(digits_task, {**GOOD, "number": 9})
    run(reused)
    assert reused.reset_config(GOOD)
    assert run(reused)[-1]["val_accuracy"] == fresh


@pytest.mark.slow
def test_a_reused_worker_does_not_grow(digits_task: Task) -> None:
    trainable = make(digits_task, GOOD, epochs=1)
    for number in range(40):
        assert trainable.reset_config({**GOOD, "number": number})
        run(trainable)
        if number == 4:
            early = resident_bytes()
    assert resident_bytes() < early + 20e6


@pytest.mark.parametrize("error", [MemoryError("no room"), torch.OutOfMemoryError("CUDA out of memory")])
def test_memory_that_runs_out_is_a_result_with_a_reason(error: Exception, digits_task: Task) -> None:
    trainable = make(digits_task, GOOD, epochs=3)
    trainable.step()
    trainable.epochs = breaks(error)
    result = trainable.step()
    assert type(error).__name__ in result["failure"] and result["done"]
    assert trainable.reset_config(GOOD)
    assert "training" in trainable.step()


def test_a_gpu_that_is_lost_ends_the_worker_and_is_no_result(digits_task: Task) -> None:
    trainable = make(digits_task, GOOD, epochs=3)
    trainable.epochs = breaks(torch.AcceleratorError("CUDA error: an illegal memory access was encountered"))
    with pytest.raises(torch.AcceleratorError):
        trainable.step()


def test_without_a_share_of_a_gpu_a_trial_stays_on_the_cpu(digits_task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    data = digits()
    devices = [Trainer(digits_task, Protocol(epochs=1), data.train, data.val, gpus=gpus).device for gpus in (0, 0.5)]
    assert devices == ["cpu", "cuda"]


def test_what_cannot_be_built_is_a_result_with_a_reason(digits_task: Task) -> None:
    (result,) = run(make(digits_task, BAD))
    assert "layer_2.kernel_size" in result["failure"]
    assert (result["val_accuracy"], result["seconds"]) == (float("-inf"), 0.0)


def test_a_training_that_fails_tells_the_seconds_it_took(digits_task: Task) -> None:
    trainable = make(digits_task, GOOD, epochs=3)
    trainable.step()
    trained_s = trainable.trainer.seconds
    trainable.epochs = trainable.trainer._timed(breaks(FloatingPointError("diverged"), seconds=0.05))
    result = trainable.step()
    assert "diverged" in result["failure"] and result["seconds"] >= trained_s + 0.05


def test_a_deployment_that_fails_has_taken_its_time(digits_task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(trainer: Trainer, calibration: object) -> None:
        time.sleep(0.2)
        raise ToolchainError("not convertible")

    monkeypatch.setattr(Trainer, "_deploy", fails)
    data = digits()
    trainer = Trainer(digits_task, Protocol(epochs=1), data.train, data.val)
    (epoch,) = trainer.start(ArchitectureSpec.model_validate(GOOD["spec"]), seed=0)
    trained_s = trainer.seconds
    with pytest.raises(ToolchainError):
        trainer.finish(epoch)
    assert trainer.seconds - trained_s >= 0.2


def test_the_training_loss_can_be_what_the_search_ranks_by(digits_task: Task) -> None:
    trainable = make(digits_task, GOOD)
    by_accuracy = run(trainable)
    trainable.rank_by = "loss"
    trainable.reset_config(GOOD)
    by_loss = run(trainable)
    first, last = (TrainingSummary.model_validate(result["training"]) for result in by_loss)
    assert by_accuracy[-1]["score"] == by_accuracy[-1]["val_accuracy"] == by_loss[-1]["val_accuracy"]
    assert first.train_loss is not None and last.train_loss is not None
    assert first.train_loss > last.train_loss > first.train_loss / 2  # the mean of both epochs, of which one was better
    assert by_loss[-1]["score"] == last.score == pytest.approx(math.exp(-last.train_loss))
