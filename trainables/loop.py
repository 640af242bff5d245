"""The training loop: one protocol, uint8 images on the training device, an epoch at a time."""

import json
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any
from typing import Protocol as Interface

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from automcu_ray.protocol import Protocol
from trainables.augment import augment, mix, normalize
from trainables.checkpoint import Checkpoint
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
    network: nn.Module,
    train_split: Examples,
    val_split: Examples,
    protocol: Protocol,
    device: str,
    seed: int,
    *,
    checkpoint: Checkpoint | None = None,
    teacher: nn.Module | None = None,
) -> Iterator[Epoch]:
    """Train in place, yielding at each report; the last one says why it is the last.

    `checkpoint` is written after each epoch; where it has a state, training goes on from there, to the same end.
    `teacher` is a trained network, whose answers are worth `protocol.distill` of the loss.

    Raises:
        FloatingPointError: the loss or an output is no longer finite.
    """

    def accuracy() -> float:
        return evaluate(network, val_split, device)

    return train_scored_by(
        accuracy,
        network,
        train_split,
        protocol,
        device,
        seed,
        layout=torch.channels_last,
        recorded=True,
        checkpoint=checkpoint,
        teacher=teacher,
    )


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
    checkpoint: Checkpoint | None = None,
    teacher: nn.Module | None = None,
) -> Iterator[Epoch]:
    """Do what `train` does where someone else knows the validation labels: `accuracy` is asked at each report.

    `layout` is how batches lie in memory: channels_last is faster, but a `view` behind a convolution fails in it.
    `recorded` lets a GPU replay steps; networks that decide something in Python do not survive it.
    """
    keep_freed_memory()
    network.to(device).to(memory_format=layout)  # type: ignore[call-overload]  # missing in torch's stubs
    optimizer = make_optimizer(network, protocol, device)
    batches = _Batches(Resident.of(train_split, device), protocol, seed, layout)
    torch.backends.cudnn.deterministic = True  # the same weights again, but for max pooling: its sums may vary
    plain = Step(network, optimizer, protocol, device, teacher)
    replayed = recorded and device.startswith("cuda") and batches.total >= PAYING_STEPS
    step: StepFunction = RecordedStep(plain) if replayed else plain
    mean = RunningMean(network, protocol.ema_decay) if protocol.ema_decay is not None else None
    course = _Course(network, optimizer, batches, mean, protocol)
    course.restore(checkpoint.state if checkpoint is not None else None)
    while not course.over:
        loss = _steps(batches.until(course.reports + 1), step, optimizer, mean, network)
        own = mean.put_into(network) if mean is not None else network.state_dict()
        course.score(accuracy(), loss)
        if checkpoint is not None and course.reports % protocol.reports_per_epoch == 0:
            checkpoint.save(course.state(own))
        if not course.over:
            yield course.epoch
            network.load_state_dict(own)
    yield course.epoch  # of a training that had ended before an interruption, all there is


def evaluate(network: nn.Module, split: Examples, device: str) -> float:
    """Return the share of images classified correctly by the float network."""
    return float(np.mean(predict(network, split.images, device) == np.asarray(split.labels)))


def predict(network: nn.Module, images: NDArray[np.uint8] | Tensor, device: str) -> NDArray[np.int64]:
    """Return the class (N,) that the float network gives each image.

    Raises:
        FloatingPointError: an output is not finite, as after a last step that went wrong: no loss has seen that.
    """
    network.eval()
    with torch.inference_mode():
        batches = torch.split(torch.as_tensor(images, device=device), SCORED_AT_ONCE)
        outputs = torch.cat([network(normalize(batch)) for batch in batches])
    if not outputs.isfinite().all():
        raise FloatingPointError("the network's outputs are no longer finite: training diverged")
    classes: NDArray[np.int64] = outputs.argmax(1).cpu().numpy()
    return classes


class _Batches:
    """The batches of a training in order, each with its learning rate; epochs in a fresh random order."""

    def __init__(self, data: Resident, protocol: Protocol, seed: int, layout: torch.memory_format) -> None:
        self.data, self.protocol, self.layout = data, protocol, layout
        self.generator = torch.Generator(device=data.labels.device).manual_seed(seed)
        self.chance = np.random.default_rng(seed)
        self.images = protocol.images_per_epoch(len(data.labels))
        self.per_epoch = protocol.steps_per_epoch(len(data.labels))
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

    def state(self) -> dict[str, Any]:
        """Return what `restore` takes, at the end of an epoch."""
        chance = json.dumps(self.chance.bit_generator.state)  # its integers have 128 bits
        return {"step": self.step, "generator": self.generator.get_state(), "chance": chance}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with the batches after those that had been given when `state` was taken."""
        self.step = state["step"]
        self.generator.set_state(state["generator"])
        self.chance.bit_generator.state = json.loads(state["chance"])

    def _inputs(self, chosen: Tensor) -> tuple[Tensor, ...]:
        batch, labels = augment(self.data.images[chosen], self.protocol, self.generator), self.data.labels[chosen]
        if not (self.protocol.mixup or self.protocol.cutmix):
            return batch.contiguous(memory_format=self.layout), labels
        mixed = mix(batch, self.protocol, self.generator, self.chance)
        return mixed.images.contiguous(memory_format=self.layout), labels, labels[mixed.partner], mixed.share


class _Course:
    """How far a training has come and what it has reached: with `state`, all that decides how it goes on."""

    def __init__(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: _Batches,
        mean: RunningMean | None,
        protocol: Protocol,
    ) -> None:
        self.network, self.optimizer, self.batches, self.mean = network, optimizer, batches, mean
        self.protocol = protocol
        self.reports, self.best, self.since_best = 0, 0.0, 0
        self.epoch = Epoch(0, 0.0, 0.0, last=False, stopped_early=False)

    @property
    def over(self) -> bool:
        """Whether the last report was the last one of all."""
        return self.epoch.last

    def score(self, accuracy: float, loss: float) -> None:
        """Add a report."""
        self.reports += 1
        self.since_best = 0 if accuracy > self.best else self.since_best + 1
        self.best = max(self.best, accuracy)
        plateau = self.protocol.patience is not None and self.since_best >= self.protocol.patience
        ended = self.reports == self.protocol.reports
        number = -(-self.reports // self.protocol.reports_per_epoch)
        self.epoch = Epoch(number, accuracy, loss, last=plateau or ended, stopped_early=plateau and not ended)

    def state(self, weights: dict[str, Tensor]) -> dict[str, Any]:
        """Return what `restore` takes, at the end of an epoch; `weights` are the network's own, not their mean."""
        return {
            "network": weights,
            "optimizer": self.optimizer.state_dict(),
            "batches": self.batches.state(),
            "mean": self.mean and {"steps": self.mean.steps, "model": self.mean.model.state_dict()},
            "reached": [self.reports, self.best, self.since_best],
            "epoch": asdict(self.epoch),
        }

    def restore(self, state: dict[str, Any] | None) -> None:
        """Stand where `state` was taken; where that was the end, the network has the mean weights that were scored."""
        if state is None:
            return
        self.network.load_state_dict(state["network"])
        rates = [group["lr"] for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state["optimizer"])
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate  # set anew at each step, but where it lies matters: a recorded step reads a GPU's
        self.batches.restore(state["batches"])
        self.reports, self.best, self.since_best = state["reached"]
        self.epoch = Epoch(**state["epoch"])
        if self.mean is not None:
            self.mean.steps = state["mean"]["steps"]
            self.mean.model.load_state_dict(state["mean"]["model"])
            if self.over:
                self.mean.put_into(self.network)


def _steps(
    batches: Iterator[tuple[float, tuple[Tensor, ...]]],
    step: StepFunction,
    optimizer: torch.optim.Optimizer,
    mean: RunningMean | None,
    network: nn.Module,
) -> float:
    """Train on the batches; return the mean loss, for which alone the device is waited for."""
    network.train()
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
