"""Print images a second of our training loop and of a textbook DataLoader loop: same network, same images, in turn.

    python benchmarks/bench_training.py [--batches 40] [--rounds 3] [--threads 2]

Textbook: a map-style data set of PIL images, torchvision's transforms an image at a time (random crop, flip, to tensor,
normalise), DataLoader with two workers, default memory layout, torch.optim.SGD. Without torchvision the same four
transforms are written with PIL and numpy, as its documentation describes them; the first line says which.
Both are warmed up, then each round runs one after the other, so the ratio holds on a busy machine too; CPU seconds
count the workers. A round is an epoch, and begins with the start of the DataLoader's workers, as each epoch does.
The last line is what a trial takes from its spec to the end of its first step, here on two images, in a used worker.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.graph import Graph
from automcu_ray.networks.lowering import lower
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import compose
from backends.programs import cpu_seconds
from trainables.datasets.base import Split
from trainables.datasets.parquet_images import parquet_images
from trainables.training.loop import train_scored_by
from trainables.training.trainer import Trainer

BATCH, PADDING, WORKERS = 128, 4, 2
NETWORKS: dict[str, list[dict[str, Any]]] = {
    "depthwise": [
        {"type": "conv", "out_channels": 16},
        {"type": "depthwise", "out_channels": 32},
        {"type": "depthwise", "out_channels": 64, "stride": 2},
        {"type": "depthwise", "out_channels": 64},
        {"type": "depthwise", "out_channels": 128, "stride": 2},
        {"type": "depthwise", "out_channels": 128},
    ],
    "residual": [
        {"type": "conv", "out_channels": 16},
        {"type": "residual", "out_channels": 16},
        {"type": "residual", "out_channels": 32, "stride": 2},
        {"type": "residual", "out_channels": 64, "stride": 2},
    ],
    "mbconv": [
        {"type": "conv", "out_channels": 16},
        {"type": "mbconv", "out_channels": 16, "expansion": 2},
        {"type": "mbconv", "out_channels": 32, "stride": 2, "expansion": 3},
        {"type": "mbconv", "out_channels": 32, "expansion": 3},
        {"type": "mbconv", "out_channels": 64, "stride": 2, "expansion": 3},
        {"type": "mbconv", "out_channels": 64, "expansion": 2},
    ],
}


@dataclass(frozen=True)
class Speed:
    """Images a second of wall time, and CPU seconds an image."""

    images_per_second: float
    cpu_seconds_per_image: float


def image_transform() -> tuple[str, Callable[[Image.Image], Tensor]]:
    """Return what transforms images, and its name: torchvision's where it can be imported."""
    try:
        from torchvision.transforms import v2
    except (ImportError, RuntimeError):  # its wheel for CUDA does not load beside a CPU build of torch
        return "PIL and numpy, no torchvision here", _transform
    steps = [
        v2.RandomCrop(32, padding=PADDING),
        v2.RandomHorizontalFlip(),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize((0.5,) * 3, (0.5,) * 3),
    ]
    return "torchvision", v2.Compose(steps)


def _transform(image: Image.Image) -> Tensor:
    width, height = image.size
    left, top = torch.randint(2 * PADDING + 1, (2,)).tolist()
    image = ImageOps.expand(image, PADDING).crop((left, top, left + width, top + height))
    if float(torch.rand(1)) < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
    return (pixels.float().div(255) - 0.5) / 0.5


class Pictures(Dataset[tuple[Tensor, int]]):
    """A split as tutorials have it: one transformed image at a time."""

    def __init__(self, split: Split, transform: Callable[[Image.Image], Tensor]) -> None:
        self.arrays, self.labels = np.ascontiguousarray(split.images.transpose(0, 2, 3, 1)), split.labels
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.arrays[index])), int(self.labels[index])


def textbook(network: nn.Module, loader: DataLoader[Any], device: str) -> None:
    """Train one epoch as tutorials do."""
    network.to(device).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for images, labels in loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(images.to(device)), labels.to(device))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def ours(network: nn.Module, split: Split, device: str) -> None:
    """Train one epoch with the project's loop; nothing is scored."""
    protocol = Protocol(epochs=1, batch_size=BATCH, learning_rate=0.05, crop_padding_px=PADDING, flip=True)
    layout = torch.channels_last
    list(train_scored_by(lambda: 0.0, network, split, protocol, device, 0, layout=layout, recorded=True))


def measure(run: Callable[[], None], images: int, device: str) -> Speed:
    """Return the speed of one run; on a GPU it ends when the GPU has finished."""
    started_s, cpu_s = time.perf_counter(), cpu_seconds()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started_s
    return Speed(images / seconds, (cpu_seconds() - cpu_s) / images)


def arithmetic_limit(graph: Graph, device: str) -> tuple[float, float]:
    """Return (GFLOP/s of a matrix product, images a second at that rate): of a CPU core, or of a GPU in bfloat16.

    A multiply-accumulate is two operations; forward and backward together are three times the forward pass.
    """
    clock, size = (time.process_time, 1024) if device == "cpu" else (time.perf_counter, 8192)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16  # as training is
    left, right = (torch.rand(size, size, device=device, dtype=dtype) for _ in range(2))
    best_s = float("inf")
    for _ in range(5):
        started_s = clock()
        product = left @ right
        float(product[0, 0])  # waits for a GPU
        best_s = min(best_s, clock() - started_s)
    rate = 2 * size**3 / best_s
    return rate / 1e9, rate / (3 * 2 * sum(op.macs for op in graph.ops))


def first_steps(split: Split, trials: int, device: str) -> list[float]:
    """Return the seconds from a spec to the end of its first step, trial after trial; the first is cold."""
    two, one = (Split(split.images[:count], split.labels[:count]) for count in (2, 1))
    limits = compose({"task": "cifar10"}).model_dump(include={"target", "constraints"})
    task = Task(dataset="cifar10", input_shape=(3, 32, 32), num_classes=10, **limits)
    trainer = Trainer(task, Protocol(epochs=1), two, one)
    specs = [ArchitectureSpec.model_validate({"backbone": blocks}) for blocks in NETWORKS.values()]
    seconds = []
    for number in range(trials):
        started_s = time.perf_counter()
        list(trainer.start(specs[number % len(specs)], seed=number))  # an epoch of one step, scored on one image
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started_s)
    return seconds


def compare(name: str, split: Split, loader: DataLoader[Any], rounds: int, device: str) -> None:
    """Print the speeds of both loops on a network, and the median ratio of the rounds."""
    graph = lower(ArchitectureSpec.model_validate({"backbone": NETWORKS[name]}), (3, 32, 32), 10)
    few = Split(split.images[: 2 * BATCH], split.labels[: 2 * BATCH])  # both are warmed up
    ours(Network(graph), few, device)
    first = DataLoader(loader.dataset, batch_size=BATCH, sampler=range(len(few)), num_workers=WORKERS)
    textbook(Network(graph), first, device)
    speeds = []
    for _ in range(rounds):
        theirs = measure(partial(textbook, Network(graph), loader, device), len(split), device)
        mine = measure(partial(ours, Network(graph), split, device), len(split), device)
        speeds.append((theirs, mine))
    for index, loop in enumerate(("textbook", "ours")):
        wall = statistics.median(pair[index].images_per_second for pair in speeds)
        cpu = statistics.median(pair[index].cpu_seconds_per_image for pair in speeds)
        print(f"{name:10} {loop:9}{wall:10.0f} images/s{1e6 * cpu:9.0f} CPU us an image")
    walls = [mine.images_per_second / theirs.images_per_second for theirs, mine in speeds]
    cpus = [theirs.cpu_seconds_per_image / mine.cpu_seconds_per_image for theirs, mine in speeds]
    print(f"{name:10} ratio {statistics.median(walls):.2f} ({min(walls):.2f} to {max(walls):.2f}) in wall time", end="")
    print(f", {statistics.median(cpus):.2f} ({min(cpus):.2f} to {max(cpus):.2f}) in CPU time")
    gflops, most = arithmetic_limit(graph, device)
    if device == "cpu":
        reached, of = 1 / statistics.median(mine.cpu_seconds_per_image for _, mine in speeds), "a core"
    else:
        reached, of = statistics.median(mine.images_per_second for _, mine in speeds), "the GPU"
    print(f"{name:10} {gflops:.0f} GFLOP/s {of} would be {most:.0f} images/s: ours is {reached / most:.1%} of it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batches = 351 if device == "cuda" else 40  # an epoch of CIFAR-10, where steps are recorded; seconds of a CPU
    parser.add_argument("--batches", type=int, default=batches, help="batches of 128 images in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = options.batches * BATCH
    data = parquet_images(folder="cifar10", max_train=rows * 10 // 9 + 10, max_test=100)
    split = Split(data.train.images[:rows], data.train.labels[:rows])
    transforms, transform = image_transform()
    loader: DataLoader[Any] = DataLoader(
        Pictures(split, transform), batch_size=BATCH, shuffle=True, num_workers=WORKERS
    )
    cores = len(os.sched_getaffinity(0))
    print(
        f"transforms: {transforms}; {device}, {options.threads} threads on {cores} cores, {len(split)} images a round"
    )
    for name in options.networks:
        compare(name, split, loader, options.rounds, device)
    cold, *warm = first_steps(split, 31, device)
    print(f"start to first step: {statistics.median(warm):.3f} s (at most {max(warm):.3f}); the first {cold:.3f} s")


if __name__ == "__main__":
    main()
