"""What an arena's task is about: a small network, trained once and kept, its seed artifact, and inputs to ask with."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from automcu_ray.core.atomic_write import write_whole
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.arena import ArenaTask, Feasibility
from automcu_ray.problem.task import Task
from automcu_ray.runtime import plugins
from backends.c_qemu.cgen import generate
from trainables.datasets import DATASETS
from trainables.datasets.base import Dataset, Split
from trainables.training.trainer import Trainer

NETWORK, FLOAT_ONNX, INT8_ONNX = "network.json", "float.onnx", "int8.onnx"
TRAINING_DATA = "train.npz"


@dataclass(frozen=True)
class Workload:
    """The network as it ships, images to train on (the agent's), and held-out ones (which it never sees)."""

    deployed: DeployedNetwork
    train: Split
    held_out: Split

    @property
    def input_bytes(self) -> int:
        """Bytes of one encoded input."""
        return int(np.prod(self.deployed.input_shape)) * self.deployed.output_dtype.itemsize

    @property
    def output_bytes(self) -> int:
        """Bytes of one output."""
        return self.deployed.num_classes * self.deployed.output_dtype.itemsize


@dataclass(frozen=True)
class Asked:
    """What one attempt is asked: images (N, C, H, W) uint8, what the network answers, labels of the held-out ones.

    The first `len(labels)` images have labels; the rest is noise.
    """

    images: npt.NDArray[np.uint8]
    expected: npt.NDArray[Any]
    labels: npt.NDArray[np.int64]


def draw(workload: Workload, asked: Feasibility, seed: int) -> Asked:
    """Return the inputs of one attempt, all drawn from a seed that nobody knew before it ran."""
    rng = np.random.default_rng(seed)
    held_out = workload.held_out
    chosen = rng.permutation(len(held_out))[: asked.images]
    near = held_out.images[chosen].astype(np.int16)
    near += rng.integers(-asked.noise, asked.noise, near.shape, dtype=np.int16, endpoint=True)
    noise = rng.integers(0, 256, (asked.random_inputs, *workload.deployed.input_shape), dtype=np.uint8)
    images = np.concatenate([near.clip(0, 255).astype(np.uint8), noise])
    return Asked(images, workload.deployed.run(images), held_out.labels[chosen])


def prepare(task: ArenaTask, folder: Path) -> Workload:
    """Return a task's workload: trained in seconds the first time, read from `folder` after that.

    Raises:
        ConfigError: no such data set.
    """
    make = plugins.load("dataset", DATASETS, task.workload.dataset)
    dataset: Dataset = make()
    if not (folder / NETWORK).exists():
        _train(task, dataset, folder)
    about = json.loads((folder / NETWORK).read_text())
    about["input_shape"] = tuple(about["input_shape"])
    deployed = DeployedNetwork(
        **about, float_onnx=(folder / FLOAT_ONNX).read_bytes(), onnx=(folder / INT8_ONNX).read_bytes()
    )
    return Workload(deployed, dataset.train, dataset.val)


def _train(task: ArenaTask, dataset: Dataset, folder: Path) -> None:
    asked = task.workload
    problem = Task(
        dataset=dataset.name,
        input_shape=dataset.input_shape,
        num_classes=len(dataset.classes),
        target=task.target,
        constraints=task.constraints,
    )
    trainer = Trainer(problem, asked.training, dataset.train, dataset.val, gpus=0)
    *_, last = trainer.start(asked.network, seed=asked.seed)
    _, deployed = trainer.finish(last)
    about = {name: value for name, value in dataclasses.asdict(deployed).items() if not isinstance(value, bytes)}
    write_whole(folder / FLOAT_ONNX, deployed.float_onnx)
    write_whole(folder / INT8_ONNX, deployed.onnx)
    write_whole(folder / NETWORK, json.dumps(about).encode())  # the last one: with it, all is there


def write_seed(workload: Workload, folder: Path) -> None:
    """Write the seed artifact: plain C for any core, as our own backend prints it."""
    folder.mkdir(parents=True)
    code = generate(workload.deployed)
    (folder / "net.c").write_text(code.source)
    (folder / "net.h").write_text(code.header)
    (folder / "artifact.yaml").write_text("stack_bytes: 2048\n")


def write_data(workload: Workload, folder: Path) -> None:
    """Write what the agent may learn from: the training images, and the network itself."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / TRAINING_DATA, images=workload.train.images, labels=workload.train.labels)
    (folder / INT8_ONNX).write_bytes(workload.deployed.onnx)
