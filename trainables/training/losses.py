"""What training minimises: one function of outputs, labels and inputs for each kind of task."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from automcu_ray.core.learning import Learning, Loss
from automcu_ray.core.training_recipe import Protocol

LossFunction = Callable[[Tensor, Tensor, Tensor], Tensor]  # (outputs, labels, batch) -> the batch's mean
_DISTANCES: dict[Loss, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": functional.mse_loss,
    "huber": functional.huber_loss,  # squares up to one standard deviation, absolute beyond: Huber 1964
}
_SAMPLE = 1024  # images that tell how far inputs spread


def loss_of(
    learning: Learning, protocol: Protocol, labels: Tensor | None = None, images: Tensor | None = None
) -> LossFunction:
    """Return the loss of a task; `labels` and `images` (uint8) are those of all training examples, as far as needed.

    Values are compared in their standard deviations, so that each of several targets counts alike; a reconstruction is
    compared with the batch that went in, in the standard deviation of all inputs.
    """
    if learning.kind == "classification":
        weights = balancing(labels) if protocol.class_weights and labels is not None else None
        smoothing = protocol.label_smoothing
        return lambda outputs, wanted, _: functional.cross_entropy(
            outputs, wanted, weight=weights, label_smoothing=smoothing
        )
    distance = _DISTANCES[learning.loss]
    if learning.kind == "anomaly":
        assert images is not None, "inputs tell their spread"
        spread = max(1e-3, float(images[:_SAMPLE].float().std()) / 128)
        return lambda outputs, _, batch: distance(outputs / spread, batch.flatten(1) / spread)
    assert labels is not None, "labels say where they lie"
    mean = torch.tensor([target.mean for target in learning.targets], device=labels.device)
    deviation = torch.tensor([target.deviation for target in learning.targets], device=labels.device)
    return lambda outputs, wanted, _: distance(outputs, (wanted - mean) / deviation)


def balancing(labels: Tensor) -> Tensor:
    """Return a weight for each class, the larger the fewer examples it has; the mean over the examples is 1."""
    counts = torch.bincount(labels)  # every class has examples: `assemble` sees to that
    return len(labels) / (len(counts) * counts)
