"""Losses: values in their deviations, reconstructions beside what went in; both kinds learn, and are judged as such."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from automcu_ray.core.learning import Learning, Target
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from trainables.datasets.base import Dataset, Split
from trainables.datasets.digits import digits
from trainables.datasets.targets import assemble_values, only_normal
from trainables.training.losses import loss_of
from trainables.training.trainer import Trainer

SPEC = ArchitectureSpec.model_validate(
    {
        "backbone": [{"type": "conv", "out_channels": 8}, {"type": "downsample", "out_channels": 8}],
        "head": {"positions": 4},
    }
)
ONCE = Protocol(epochs=1)


def test_values_count_alike_whatever_their_unit() -> None:
    targets = (
        Target(name="a", mean=100.0, deviation=10.0, trivial_mae=1.0),
        Target(name="b", mean=0.0, deviation=0.1, trivial_mae=1.0),
    )
    labels = torch.tensor([[110.0, 0.0], [100.0, 0.1]])
    outputs = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    for loss, wanted in (("mse", 0.5), ("huber", 0.25)):
        learning = Learning.of("regression", None, loss, targets)  # type: ignore[arg-type]
        assert float(loss_of(learning, ONCE, labels)(outputs, labels, outputs)) == pytest.approx(wanted)


def test_a_reconstruction_is_compared_with_the_batch_in_deviations_of_the_inputs() -> None:
    images = torch.tensor([0, 128, 255, 128], dtype=torch.uint8).reshape(1, 1, 2, 2).repeat(10, 1, 1, 1)
    batch, outputs = torch.randn(3, 1, 2, 2), torch.randn(3, 4)
    spread = float(images.float().std()) / 128
    loss = loss_of(Learning.of("anomaly"), ONCE, None, images)(outputs, torch.zeros(3), batch)
    wanted = functional.mse_loss(outputs, batch.flatten(1)) / spread**2
    assert float(loss) == pytest.approx(float(wanted), rel=1e-5)


def test_classes_are_told_apart_as_ever() -> None:
    logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 1])
    protocol = Protocol(epochs=1, label_smoothing=0.1)
    found = loss_of(Learning(), protocol, labels)(logits, labels, Tensor())
    assert torch.equal(found, functional.cross_entropy(logits, labels, label_smoothing=0.1))


def values() -> Dataset:
    """Two quantities of a picture of a digit: how dark its left half is, and how much darker than the right one."""
    train = digits().train
    halves = train.images.astype(np.float32).mean(axis=(1, 2)).reshape(len(train), 2, 4).mean(axis=2)
    labels = np.stack([halves[:, 0], 100 * (halves[:, 0] - halves[:, 1])], axis=1)
    return assemble_values(
        "halves", ("left", "apart"), Split(train.images, labels), val_share=0.2, test_share=0.2, split_seed=0
    )


@pytest.mark.training
@pytest.mark.parametrize("kind", ["regression", "anomaly"])
def test_networks_learn_more_than_the_mean_and_ship_as_int8(digits_task: Task, kind: str) -> None:
    data = values() if kind == "regression" else only_normal(digits(), ("0",))
    learning = Learning.of(data.kind, "mae" if kind == "regression" else None, targets=data.targets)
    task = digits_task.replace(num_classes=data.outputs, learning=learning)
    trainer = Trainer(task, Protocol(epochs=12, batch_size=32, learning_rate=0.1), data.train, data.val, gpus=0)
    *_, last = trainer.start(SPEC, seed=0)
    summary, deployed = trainer.finish(last)
    answers = learning.answers(deployed.values(data.val.images), data.val.images)
    figures = learning.figures(answers, data.val.labels)
    assert summary.metric == learning.metric and summary.value == pytest.approx(figures[learning.metric])
    if kind == "regression":
        assert summary.told.startswith("mae ") and summary.value < learning.trivial_mae / 3
        assert summary.val_accuracy == pytest.approx(1 - summary.value / learning.trivial_mae)
        assert figures["r2"] > 0.8
    else:
        assert summary.told.startswith("auc ") and summary.value > 0.95
    assert summary.val_accuracy_float is not None and math.isclose(
        summary.val_accuracy, summary.val_accuracy_float, abs_tol=0.05
    )
