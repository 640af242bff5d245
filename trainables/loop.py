"""The training loop: one protocol, uint8 images on the training device, an epoch at a time."""

import math
import resource
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol as Interface

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from automcu_ray.protocol import Protocol
from trainables.augment import augment, mix, normalize
from trainables.memory import keep_freed_memory
from trainables.step import (
    PAYING_STEPS,
    RecordedStep,
    RunningMean,
    Step,
    StepFunction,
    learning_rate,
    make_optimizer,
    set_rate,
)

SCORED_AT_ONCE = 256

# Arrays in Ray's object store are read-only on purpose, and nothing here writes to them.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")


class Examples(Interface):
    """What training needs of a split: images (N, C, H, W) uint8, labels (N,) int64.

    Not `Split` itself: this module also runs where generated code does, and data sets must be out of its reach.
    """

    @property
    def images(self) -> NDArray[np.uint8] | Tensor: ...

    @property
    def labels(self) -> NDArray[np.int64] | Tensor: ...


@dataclass(frozen=True)
class Resident:
    """A split on the training device. On a CPU it is the arrays themselves: workers map the same memory."""

    images: Tensor
    labels: Tensor

    @classmethod
    def of(cls, split: Examples, device: str) -> "Resident":
        """Return a split on a device; nothing is copied that is there already."""
        return cls(torch.as_tensor(split.images, device=device), torch.as_tensor(split.labels, device=device))


@dataclass(frozen=True)
class Epoch:
    """What an epoch, or a report's part of it, gave: float validation accuracy, mean training loss, if it is the last.

    `number` counts from 1; reports in the middle of an epoch have the number of that epoch.
    """

    number: int
    val_accuracy: float
    loss: float
    last: bool
    stopped_early: bool


def train(
    network: nn.Module, train_split: Examples, val_split: Examples, protocol: Protocol, device: str, seed: int
) -> Iterator[Epoch]:
    """Train in place, yielding at each report; the last one says why it is the last.

    Raises:
        FloatingPointError: the loss is no longer finite.
    """

    def accuracy() -> float:
        return evaluate(network, val_split, device)

    layout = torch.channels_last
    return train_scored_by(accuracy, network, train_split, protocol, device, seed, layout=layout, recorded=True)


def train_scored_by(
    accuracy: Callable[[], float],
    network: nn.Module,
    train_split: Examples,
    protocol: Protocol,
    device: str,
    seed: int,
    *,
    layout: torch.memory_format,
    recorded: bool = False,
) -> Iterator[Epoch]:
    """Do what `train` does where someone else knows the validation labels: `accuracy` is asked at each report.

    `layout` is how batches lie in memory: channels_last is faster, but a `view` behind a convolution fails in it.
    `recorded` lets a GPU replay steps, which networks that decide something in Python do not survive.
    """
    keep_freed_memory()
    network.to(device).to(memory_format=layout)  # type: ignore[call-overload]  # missing in torch's stubs
    optimizer = make_optimizer(network, protocol, device)
    step: StepFunction = Step(network, optimizer, protocol, device)
    batches = _Batches(Resident.of(train_split, device), protocol, seed, layout)
    if device.startswith("cuda"):
        torch.backends.cudnn.deterministic = True  # same seed, same weights
        if recorded and batches.total >= PAYING_STEPS:
            step = RecordedStep(Step(network, optimizer, protocol, device))
    mean = RunningMean(network, protocol.ema_decay) if protocol.ema_decay is not None else None
    best, since_best = 0.0, 0
    for report in range(1, protocol.reports + 1):
        network.train()
        loss = _steps(batches.until(report), step, optimizer, mean, network)
        own = mean.put_into(network) if mean is not None else None
        score = accuracy()
        since_best = 0 if score > best else since_best + 1
        best = max(best, score)
        plateau = protocol.patience is not None and since_best >= protocol.patience
        last = plateau or report == protocol.reports
        number = -(-report // protocol.reports_per_epoch)
        yield Epoch(number, score, loss, last, stopped_early=plateau and report < protocol.reports)
        if last:
            return
        if own is not None:
            network.load_state_dict(own)


def evaluate(network: nn.Module, split: Examples, device: str) -> float:
    """Return the share of images classified correctly by the float network."""
    return float(np.mean(predict(network, split.images, device) == np.asarray(split.labels)))


def predict(network: nn.Module, images: NDArray[np.uint8] | Tensor, device: str) -> NDArray[np.int64]:
    """Return the class (N,) that the float network gives each image."""
    network.eval()
    with torch.inference_mode():
        batches = torch.split(torch.as_tensor(images, device=device), SCORED_AT_ONCE)
        classes: NDArray[np.int64] = torch.cat([network(normalize(batch)).argmax(1) for batch in batches]).cpu().numpy()
    return classes


def peak_memory_bytes(device: str) -> int:
    """Return the most memory this process has used: allocated on a GPU, resident on a CPU."""
    if device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class _Batches:
    """The batches of a training in order, each with its learning rate; epochs in a fresh random order."""

    def __init__(self, data: Resident, protocol: Protocol, seed: int, layout: torch.memory_format) -> None:
        self.data, self.protocol, self.layout = data, protocol, layout
        self.generator = torch.Generator(device=data.labels.device).manual_seed(seed)
        self.chance = np.random.default_rng(seed)
        self.images = max(1, round(protocol.train_share * len(data.labels)))
        self.per_epoch = -(-self.images // protocol.batch_size)
        self.total, self.step = protocol.epochs * self.per_epoch, 0
        if protocol.reports_per_epoch > self.per_epoch:
            raise ValueError(f"{protocol.reports_per_epoch} reports an epoch, but an epoch has {self.per_epoch} steps")

    def until(self, report: int) -> Iterator[tuple[float, tuple[Tensor, ...]]]:
        """Yield (learning rate, inputs of a step) for the batches that are left before a report."""
        for step in range(self.step, report * self.total // self.protocol.reports):
            self.step, number = step + 1, step % self.per_epoch
            if number == 0:
                order = torch.randperm(len(self.data.labels), generator=self.generator, device=self.data.labels.device)
                self.order = torch.split(order[: self.images], self.protocol.batch_size)
            yield learning_rate(self.protocol, step, self.total), self._inputs(self.order[number])

    def _inputs(self, chosen: Tensor) -> tuple[Tensor, ...]:
        batch, labels = augment(self.data.images[chosen], self.protocol, self.generator), self.data.labels[chosen]
        if not (self.protocol.mixup or self.protocol.cutmix):
            return batch.contiguous(memory_format=self.layout), labels
        mixed = mix(batch, self.protocol, self.generator, self.chance)
        return mixed.images.contiguous(memory_format=self.layout), labels, labels[mixed.partner], mixed.share


def _steps(
    batches: Iterator[tuple[float, tuple[Tensor, ...]]],
    step: StepFunction,
    optimizer: torch.optim.Optimizer,
    mean: RunningMean | None,
    network: nn.Module,
) -> float:
    """Train on the batches; return the mean loss, for which alone the device is waited for."""
    losses = []
    for rate, inputs in batches:
        set_rate(optimizer, rate)
        losses.append(step(*inputs))
        if mean is not None:
            mean.update(network)
    loss = float(torch.stack(losses).mean())
    if not math.isfinite(loss):
        raise FloatingPointError(f"the loss became {loss}: training diverged")
    return loss
