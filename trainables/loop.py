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
from torch.nn import functional

from automcu_ray.protocol import Protocol

# Arrays in Ray's object store are read-only on purpose, and nothing here writes to them.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")


class Examples(Interface):
    """What training needs of a split: images (N, C, H, W) uint8, labels (N,) int64.

    Not `Split` itself: this module also runs where generated code does, and data sets must be out of its reach.
    """

    @property
    def images(self) -> NDArray[np.uint8]: ...

    @property
    def labels(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class Epoch:
    """What one epoch gave: float validation accuracy, mean training loss, whether it was the last one."""

    number: int
    val_accuracy: float
    loss: float
    last: bool
    stopped_early: bool


def train(
    network: nn.Module, train_split: Examples, val_split: Examples, protocol: Protocol, device: str, seed: int
) -> Iterator[Epoch]:
    """Train in place, yielding after each epoch; the last one says why it is the last.

    Raises:
        FloatingPointError: the loss is no longer finite.
    """

    def accuracy() -> float:
        return evaluate(network, val_split, device)

    return train_scored_by(accuracy, network, train_split, protocol, device, seed, layout=torch.channels_last)


def train_scored_by(
    accuracy: Callable[[], float],
    network: nn.Module,
    train_split: Examples,
    protocol: Protocol,
    device: str,
    seed: int,
    *,
    layout: torch.memory_format,
) -> Iterator[Epoch]:
    """Do what `train` does where someone else knows the validation labels: `accuracy` is asked after each epoch.

    `layout` is how batches lie in memory: channels_last is faster, but a `view` behind a convolution fails in it.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    network.to(device).to(memory_format=layout)  # type: ignore[call-overload]  # missing in torch's stubs
    images, labels = _on_device(train_split, device)
    optimizer = torch.optim.SGD(
        network.parameters(),
        lr=protocol.learning_rate,
        momentum=protocol.momentum,
        weight_decay=protocol.weight_decay,
        nesterov=protocol.momentum > 0,
    )
    schedule = _schedule(optimizer, protocol, steps=protocol.epochs * -(-len(labels) // protocol.batch_size))
    best, since_best = 0.0, 0
    for number in range(1, protocol.epochs + 1):
        loss = _one_epoch(network, images, labels, protocol, optimizer, schedule, generator, layout)
        score = accuracy()
        since_best = 0 if score > best else since_best + 1
        best = max(best, score)
        plateau = protocol.patience is not None and since_best >= protocol.patience
        last = plateau or number == protocol.epochs
        yield Epoch(number, score, loss, last, stopped_early=plateau and number < protocol.epochs)
        if last:
            return


def evaluate(network: nn.Module, split: Examples, device: str) -> float:
    """Return the share of images classified correctly by the float network."""
    return float(np.mean(predict(network, split.images, device) == split.labels))


def predict(network: nn.Module, images: NDArray[np.uint8], device: str, batch_size: int = 1024) -> NDArray[np.int64]:
    """Return the class (N,) that the float network gives each image."""
    network.eval()
    with torch.inference_mode():
        batches = torch.split(torch.from_numpy(images).to(device), batch_size)
        classes: NDArray[np.int64] = torch.cat([network(normalize(batch)).argmax(1) for batch in batches]).cpu().numpy()
    return classes


def normalize(images: Tensor) -> Tensor:
    """Return the network's input: (pixel - 128) / 128, so that int8 deployment sees pixel - 128."""
    return (images.float() - 128) / 128


def augment(images: Tensor, protocol: Protocol, generator: torch.Generator) -> Tensor:
    """Return float images (N, C, H, W), each shifted and mirrored at random, in one batch operation."""
    count, _, height, width = images.shape
    device = images.device
    batch = normalize(images)
    if protocol.crop_padding_px:
        pad = protocol.crop_padding_px
        padded = functional.pad(batch, (pad, pad, pad, pad), value=-1.0)
        corner = torch.randint(2 * pad + 1, (2, count, 1), generator=generator, device=device)
        rows = corner[0] + torch.arange(height, device=device)
        columns = corner[1] + torch.arange(width, device=device)
        which = torch.arange(count, device=device)[:, None, None]
        batch = padded.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    if protocol.flip:
        mirrored = torch.rand(count, generator=generator, device=device) < 0.5
        batch = torch.where(mirrored[:, None, None, None], batch.flip(3), batch)
    return batch


def peak_memory_bytes(device: str) -> int:
    """Return the most memory this process has used: allocated on a GPU, resident on a CPU."""
    if device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _on_device(split: Examples, device: str) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(split.images).to(device), torch.from_numpy(split.labels).to(device)


def _one_epoch(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    protocol: Protocol,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    generator: torch.Generator,
    layout: torch.memory_format,
) -> float:
    """Run one epoch in a fresh random order; return the mean loss."""
    network.train()
    order = torch.randperm(len(labels), generator=generator, device=labels.device)
    losses = []
    for chosen in torch.split(order, protocol.batch_size):
        batch = augment(images[chosen], protocol, generator).contiguous(memory_format=layout)
        logits = network(batch)
        loss = functional.cross_entropy(logits, labels[chosen], label_smoothing=protocol.label_smoothing)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    mean = float(torch.stack(losses).mean())
    if not math.isfinite(mean):
        raise FloatingPointError(f"the loss became {mean}: training diverged")
    return mean


def _schedule(optimizer: torch.optim.Optimizer, protocol: Protocol, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
    rate = protocol.learning_rate
    if protocol.schedule == "one_cycle":
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, rate, total_steps=steps, pct_start=0.25, cycle_momentum=False
        )
    if protocol.schedule == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    return torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
