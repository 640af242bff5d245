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

from automcu_ray.core.learning import Learning
from automcu_ray.core.training_recipe import Protocol
from trainables.training.augment import augment, mix, normalize
from trainables.training.checkpoint import Checkpoint
from trainables.training.losses import loss_of
from trainables.training.process_memory import keep_freed_memory
from trainables.training.step import (
    PAYING_STEPS,
    RecordedStep,
    RunningMean,
    Step,
    StepFunction,
    learning_rates,
    load_optimizer,
    make_optimizer,
    set_rate,
)

SCORED_AT_ONCE = 256
CLASSES = Learning()

# Arrays in Ray's object store are read-only on purpose, and nothing here writes to them.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")


class Examples(Interface):
    """What training needs of a split: images (N, C, H, W) uint8, labels (N,) int64, or (N, targets) float32.

    Not `Split` itself: this module also runs where generated code does, and data sets must be out of its reach.
    """

    @property
    def images(self) -> NDArray[np.uint8] | Tensor: ...

    @property
    def labels(self) -> NDArray[Any] | Tensor: ...


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
    recorded: bool = True,
    checkpoint: Checkpoint | None = None,
    teacher: nn.Module | None = None,
    learning: Learning = CLASSES,
) -> Iterator[Epoch]:
    """Train in place, yielding at each report; the last one says why it is the last.

    `recorded` lets a GPU replay steps; networks that decide something in Python do not survive it.
    `checkpoint` is written after each epoch; where it has a state, training goes on from there, to the same end.
    `teacher` is a trained network, whose answers are worth `protocol.distill` of the loss.

    Raises:
        FloatingPointError: the loss or an output is no longer finite.
    """
    return train_scored_by(
        lambda: evaluate(network, val_split, device, learning),
        network,
        train_split,
        protocol,
        device,
        seed,
        layout=torch.channels_last,
        recorded=recorded,
        checkpoint=checkpoint,
        teacher=teacher,
        learning=learning,
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
    learning: Learning = CLASSES,
) -> Iterator[Epoch]:
    """Do what `train` does where someone else knows the validation labels: `accuracy` is asked at each report.

    `layout` is how batches lie in memory: channels_last is faster, but a `view` behind a convolution fails in it.
    """
    keep_freed_memory()
    network.to(device).to(memory_format=layout)  # type: ignore[call-overload]  # missing in torch's stubs
    torch.backends.cudnn.deterministic = True  # the same weights again, but for max pooling: its sums may vary
    optimizer = make_optimizer(network, protocol, device)
    resident = Resident.of(train_split, device)
    batches = Batches(resident, protocol, seed, layout)
    loss = loss_of(learning, protocol, resident.labels, resident.images)
    plain = Step(network, optimizer, protocol, device, teacher, loss)
    replayed = recorded and device.startswith("cuda") and batches.total >= PAYING_STEPS
    step: StepFunction = RecordedStep(plain) if replayed else plain
    mean = RunningMean(network, protocol.ema_decay) if protocol.ema_decay is not None else None
    reports, best, since_best = 0, -math.inf, 0  # a score may be negative
    epoch = Epoch(0, 0.0, 0.0, last=False, stopped_early=False)
    if checkpoint is not None and (state := checkpoint.state) is not None:
        network.load_state_dict(state["network"])
        load_optimizer(optimizer, state["optimizer"])
        batches.restore(state["batches"])
        reports, best, since_best = state["reached"]
        epoch = Epoch(**state["epoch"])
        if mean is not None:
            mean.steps = state["mean"]["steps"]
            mean.model.load_state_dict(state["mean"]["model"])
            if epoch.last:
                mean.put_into(network)
    while not epoch.last:
        network.train()
        losses = []
        for rate, inputs in batches.until(reports + 1):
            set_rate(optimizer, rate)
            losses.append(step(*inputs))
            if mean is not None:
                mean.update(network)
        mean_loss = float(torch.stack(losses).mean())  # for which alone the device is waited for
        if not math.isfinite(mean_loss):
            raise FloatingPointError(f"the loss became {mean_loss}: training diverged")
        own = mean.put_into(network) if mean is not None else network.state_dict()
        reached = accuracy()
        reports += 1
        since_best = 0 if reached > best else since_best + 1
        best = max(best, reached)
        plateau = protocol.patience is not None and since_best >= protocol.patience
        ended = reports == protocol.reports
        number = -(-reports // protocol.reports_per_epoch)
        epoch = Epoch(number, reached, mean_loss, last=plateau or ended, stopped_early=plateau and not ended)
        if checkpoint is not None and reports % protocol.reports_per_epoch == 0:
            state = {"network": own, "optimizer": optimizer.state_dict(), "batches": batches.state()}
            state["mean"] = mean and {"steps": mean.steps, "model": mean.model.state_dict()}
            checkpoint.save({**state, "reached": [reports, best, since_best], "epoch": asdict(epoch)})
        if not epoch.last:
            yield epoch
            network.load_state_dict(own)
    yield epoch  # of a training that had ended before an interruption, all there is


def evaluate(network: nn.Module, split: Examples, device: str, learning: Learning = CLASSES) -> float:
    """Return the score of the float network (`Learning.score`): the share of images classified correctly, for one."""
    values = outputs(network, split.images, device).cpu().numpy()
    return learning.score(values, np.asarray(split.images), np.asarray(split.labels))


def predict(network: nn.Module, images: NDArray[np.uint8] | Tensor, device: str) -> NDArray[np.int64]:
    """Return the class (N,) that the float network gives each image; errors as for `outputs`."""
    classes: NDArray[np.int64] = outputs(network, images, device).argmax(1).cpu().numpy()
    return classes


def outputs(network: nn.Module, images: NDArray[np.uint8] | Tensor, device: str) -> Tensor:
    """Return what the float network gives for each image, (N, outputs).

    Raises:
        FloatingPointError: an output is not finite, as after a last step that went wrong: no loss has seen that.
    """
    network.eval()
    with torch.inference_mode():
        batches = torch.split(torch.as_tensor(images, device=device), SCORED_AT_ONCE)
        found = torch.cat([network(normalize(batch)) for batch in batches])
    if not found.isfinite().all():
        raise FloatingPointError("the network's outputs are no longer finite: training diverged")
    return found


class Batches:
    """The batches of a training in order, each with its learning rate; epochs in a fresh random order."""

    def __init__(self, data: Resident, protocol: Protocol, seed: int, layout: torch.memory_format) -> None:
        self.data, self.protocol, self.layout = data, protocol, layout
        self.generator = torch.Generator(device=data.labels.device).manual_seed(seed)
        self.chance = np.random.default_rng(seed)
        self.images = protocol.images_per_epoch(len(data.labels))
        self.per_epoch = protocol.steps_per_epoch(len(data.labels))
        self.total, self.step = protocol.epochs * self.per_epoch, 0
        self.rates = learning_rates(protocol, self.total)
        if protocol.reports_per_epoch > self.per_epoch:
            raise ValueError(f"{protocol.reports_per_epoch} reports an epoch, but an epoch has {self.per_epoch} steps")

    def until(self, report: int) -> Iterator[tuple[float, tuple[Tensor, ...]]]:
        """Yield (learning rate, inputs of a step) for the batches that are left before a report."""
        for step in range(self.step, report * self.total // self.protocol.reports):
            self.step, number = step + 1, step % self.per_epoch
            if number == 0:
                order = torch.randperm(len(self.data.labels), generator=self.generator, device=self.data.labels.device)
                self.order = torch.split(order[: self.images], self.protocol.batch_size)
            chosen = self.order[number]
            batch, labels = augment(self.data.images[chosen], self.protocol, self.generator), self.data.labels[chosen]
            inputs: tuple[Tensor, ...] = (labels,)
            if self.protocol.mixup or self.protocol.cutmix:
                mixed = mix(batch, self.protocol, self.generator, self.chance)
                batch, inputs = mixed.images, (labels, labels[mixed.partner], mixed.share)
            yield self.rates[step], (batch.contiguous(memory_format=self.layout), *inputs)

    def state(self) -> dict[str, Any]:
        """Return what `restore` takes, at the end of an epoch."""
        chance = json.dumps(self.chance.bit_generator.state)  # its integers have 128 bits
        return {"step": self.step, "generator": self.generator.get_state(), "chance": chance}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with the batches after those that had been given when `state` was taken."""
        self.step = state["step"]
        self.generator.set_state(state["generator"])
        self.chance.bit_generator.state = json.loads(state["chance"])
