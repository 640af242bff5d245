"""A training that is killed goes on from its last epoch, and ends where it would have ended."""

from pathlib import Path

import pytest
import torch

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.problem.task import Task
from tests.trainables.finalists.pipelines import DATA, SPEC
from trainables.training.checkpoint import Checkpoint
from trainables.training.loop import Epoch
from trainables.training.trainer import Trainer

pytestmark = pytest.mark.training

PLAIN = Protocol(epochs=4, batch_size=64, crop_padding_px=1)
MIXED = PLAIN.replace(mixup=1.0, cutmix=1.0, ema_decay=0.9, reports_per_epoch=2)


def training(task: Task, protocol: Protocol, path: Path, about: str = "it") -> tuple[Trainer, list[Epoch]]:
    """Return a job and the epochs that it has trained, after those that the file knows of."""
    trainer = Trainer(task, protocol, DATA.train, DATA.val)
    return trainer, list(trainer.start(SPEC, seed=0, checkpoint=Checkpoint(path, about)))


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [value.clone() for value in trainer.network.state_dict().values()]


@pytest.mark.parametrize("protocol", [PLAIN, MIXED], ids=["plain", "mixed and averaged"])
def test_a_training_that_was_interrupted_ends_as_one_that_was_not(
    protocol: Protocol, digits_task: Task, tmp_path: Path
) -> None:
    whole, epochs = training(digits_task, protocol, tmp_path / "whole")
    stopped = Trainer(digits_task, protocol, DATA.train, DATA.val)
    seen = stopped.start(SPEC, seed=0, checkpoint=Checkpoint(tmp_path / "stopped", "it"))
    for _ in range(2 * protocol.reports_per_epoch):
        next(seen)
    rest, others = training(digits_task, protocol, tmp_path / "stopped")
    assert [epoch.number for epoch in others] == [3] * protocol.reports_per_epoch + [4] * protocol.reports_per_epoch
    assert others == epochs[-len(others) :]
    assert all(torch.equal(one, other) for one, other in zip(weights(whole), weights(rest), strict=True))
    assert rest.seconds > stopped.seconds > 0, "the seconds before count"


def test_a_training_that_had_ended_is_not_repeated(digits_task: Task, tmp_path: Path) -> None:
    trainer, epochs = training(digits_task, MIXED, tmp_path / "it")
    again, only = training(digits_task, MIXED, tmp_path / "it")
    assert only == epochs[-1:]
    assert all(torch.equal(one, other) for one, other in zip(weights(trainer), weights(again), strict=True)), "the mean"


def test_another_training_or_a_broken_file_is_no_beginning(digits_task: Task, tmp_path: Path) -> None:
    path = tmp_path / "it"
    training(digits_task, PLAIN, path)
    assert Checkpoint(path, "it").state is not None
    assert Checkpoint(path, "another one").state is None
    path.write_bytes(path.read_bytes()[:-100])
    assert Checkpoint(path, "it").state is None
    path.write_bytes(b"")
    assert Checkpoint(path, "it").state is None
