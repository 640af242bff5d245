"""What a training took: its own peak, and not that of the process's life."""

from pathlib import Path

import numpy as np
import pytest
import torch

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.problem.task import Task
from tests.trainables.finalists.pipelines import DATA, SPEC
from trainables.training import trainer as module
from trainables.training.process_memory import (
    forget_peak_memory,
    keep_freed_memory,
    limit_gpu_memory,
    peak_memory_bytes,
)
from trainables.training.trainer import Trainer

MB = 1 << 20


def test_freed_memory_can_be_kept_more_than_once() -> None:
    keep_freed_memory()
    keep_freed_memory()


def test_trials_that_share_a_gpu_leave_room_for_what_cuda_takes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", shares.append)
    for gpus in (0.25, 1.0, 2.0):  # of two GPUs, a training uses one
        limit_gpu_memory(gpus)
    assert shares == pytest.approx([0.225, 0.9, 0.9])


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc/self/clear_refs")
def test_a_peak_is_forgotten() -> None:
    keep_freed_memory()
    assert forget_peak_memory("cpu")
    before = peak_memory_bytes("cpu")
    large = np.ones(100 * MB, np.uint8)
    high = peak_memory_bytes("cpu")
    del large
    assert forget_peak_memory("cpu")  # gives it back
    assert high - before > 90 * MB and high - peak_memory_bytes("cpu") > 90 * MB


@pytest.mark.thorough
def test_a_peak_that_may_be_anothers_is_not_told(digits_task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "forget_peak_memory", lambda device: False)
    trainer = Trainer(digits_task, Protocol(epochs=1), DATA.train, DATA.val)
    (epoch,) = trainer.start(SPEC, seed=0)
    assert trainer.finish(epoch)[0].peak_memory_bytes is None
