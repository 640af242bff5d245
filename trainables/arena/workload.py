"""What an arena's task is about: a small network, trained once and kept, its seed artifact, and inputs to ask with."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import yaml

from automcu_ray.core.atomic_write import write_whole
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.arena import ArenaTask, Feasibility
from automcu_ray.problem.artifact import NETWORK as NETWORK_FILE
from automcu_ray.problem.artifact import NetworkArtifact
from automcu_ray.problem.task import Task
from automcu_ray.runtime import plugins
from backends.arena.rigs import rig_of
from trainables.datasets import DATASETS
from trainables.datasets.base import Dataset, Split
from trainables.training.trainer import Trainer

NETWORK, FLOAT_ONNX, INT8_ONNX = "network.json", "float.onnx", "int8.onnx"
TRAINING_DATA = "train.npz"


@dataclass(frozen=True)
class Workload:
    """The network as it ships, images to train on (the agent's), and held-out ones (which it never sees).

    There is no network where the artifact is one: then every attempt brings its own.
    """

    deployed: DeployedNetwork | None
    train: Split
    held_out: Split

    @property
    def seed(self) -> DeployedNetwork:
        """The seed network."""
        assert self.deployed is not None, "a task whose artifact is C has a network"
        return self.deployed


@dataclass(frozen=True)
class Asked:
    """What one attempt is asked: images (N, C, H, W) uint8, and labels of the held-out ones.

    The first `len(labels)` images have labels; the rest is noise.
    """

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]


def draw(workload: Workload, asked: Feasibility, seed: int) -> Asked:
    """Return the inputs of one attempt, all drawn from a seed that nobody knew before it ran."""
    rng = np.random.default_rng(seed)
    held_out = workload.held_out
    chosen = rng.permutation(len(held_out))[: asked.images]
    near = held_out.images[chosen].astype(np.int16)
    near += rng.integers(-asked.noise, asked.noise, near.shape, dtype=np.int16, endpoint=True)
    noise = rng.integers(0, 256, (asked.random_inputs, *held_out.images.shape[1:]), dtype=np.uint8)
    images = np.concatenate([near.clip(0, 255).astype(np.uint8), noise])
    return Asked(images, held_out.labels[chosen])


def prepare(task: ArenaTask, folder: Path) -> Workload:
    """Return a task's workload: trained in seconds the first time, read from `folder` after that.

    Raises:
        ConfigError: no such data set.
    """
    make = plugins.load("dataset", DATASETS, task.workload.dataset)
    dataset: Dataset = make()
    if task.artifact == "network":
        return Workload(None, dataset.train, dataset.val)
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
    deployed = trained(task, asked.network, asked.training, dataset.train, dataset.val, seed=asked.seed)
    about = {name: value for name, value in dataclasses.asdict(deployed).items() if not isinstance(value, bytes)}
    write_whole(folder / FLOAT_ONNX, deployed.float_onnx)
    write_whole(folder / INT8_ONNX, deployed.onnx)
    write_whole(folder / NETWORK, json.dumps(about).encode())  # the last one: with it, all is there


def trained(
    task: ArenaTask, network: ArchitectureSpec, training: Protocol, train: Split, val: Split, *, seed: int
) -> DeployedNetwork:
    """Return a network for a task's images, trained and rounded to int8 as it ships.

    Raises:
        ValueError, RuntimeError, ...: of `CANDIDATE_ERRORS`, where it cannot be built or trained.
    """
    problem = Task(
        dataset=task.workload.dataset,
        input_shape=(train.images.shape[1], train.images.shape[2], train.images.shape[3]),
        num_classes=int(max(train.labels.max(), val.labels.max())) + 1,
        target=task.target,
        constraints=task.constraints,
    )
    trainer = Trainer(problem, training, train, val, gpus=0)
    *_, last = trainer.start(network, seed=seed)
    return trainer.finish(last)[1]


def input_bytes(deployed: DeployedNetwork) -> int:
    """Return the bytes of one encoded input."""
    return int(np.prod(deployed.input_shape)) * deployed.output_dtype.itemsize


def write_seed(task: ArenaTask, workload: Workload, folder: Path, workdir: Path) -> None:
    """Write a task's seed artifact into the new `folder`: C by its rig, in `workdir`, or the network and its training.

    Raises:
        ToolchainError: the vendor's tools do not take the seed network.
        ToolMissingError: they are not there.
    """
    if task.artifact == "code":
        rig_of(task).write_seed(workload.seed, folder, workdir)
        return
    folder.mkdir(parents=True)
    seed = NetworkArtifact(network=task.workload.network, training=task.workload.training)
    text = yaml.safe_dump(seed.model_dump(mode="json", exclude_defaults=True), sort_keys=False)
    (folder / NETWORK_FILE).write_text(text)


def write_data(workload: Workload, folder: Path) -> None:
    """Write what the agent may learn from: the training images, and the network itself."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / TRAINING_DATA, images=workload.train.images, labels=workload.train.labels)
    if workload.deployed is not None:
        (folder / INT8_ONNX).write_bytes(workload.deployed.onnx)
