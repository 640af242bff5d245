"""A trained float network whose answers finalists learn from: one of them, or the winner of another run."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from automcu_ray.core.errors import ConfigError
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.candidate import Candidate, Structure
from automcu_ray.networks.graph import ConstructibilityError
from automcu_ray.problem.task import Task
from automcu_ray.records.events import Finished, Started
from automcu_ray.records.journal import Repository
from automcu_ray.runtime.run_folder import RunFolder
from trainables.training.trainer import WEIGHTS

KEY = "trainer.teacher"


@dataclass(frozen=True)
class Teacher:
    """A network's name for people, its structure, and the file of its weights.

    `from_start`: it teaches in all epochs, since it is known when they begin; if not, in those with rounding alone.
    """

    name: str
    structure: Structure
    weights: Path
    from_start: bool = False

    @classmethod
    def finalist(cls, candidate: Candidate, folder: Path) -> "Teacher":
        """Return a candidate that has been trained in float in this folder of finalists."""
        assert candidate.structure is not None, "generated code teaches nobody"
        return cls(_name(candidate), candidate.structure, folder / candidate.hash / WEIGHTS)

    def network(self, task: Task) -> Network:
        """Return the trained network, on the CPU."""
        network = Network(task.graph(self.structure))
        network.load_state_dict(torch.load(self.weights, map_location="cpu", weights_only=True))
        return network


def teacher_of_run(path: Path, task: Task, data: Mapping[str, object]) -> Teacher:
    """Return the winner of a finished run on the same data, split in the same way, whatever its limits.

    On other images for training it may have seen what is held back here.

    Raises:
        ConfigError: no such run, or one that leaves no network that can teach.
    """
    folder, repository = RunFolder(path), Repository.of_run(path, KEY)
    started, finished = repository.last(Started), repository.last(Finished)
    if finished is None or finished.manifest is None:
        raise _unfit(path, "it has no winner: finish it with --resume, or name another run")
    there, candidate = started.data if started else None, repository.proposed.get(finished.manifest.number)
    if there is None or candidate is None:
        raise _unfit(path, "its journal does not say what its data are, or who won")
    if other := [key for key in data if there.get(key) != data[key]]:
        told = ", ".join(f"{key} {data[key]} here and {there.get(key)} there" for key in other)
        raise _unfit(path, f"its data are others, and may have what is held back here: {told}")
    if candidate.structure is None:
        raise _unfit(path, "its winner is generated code, which is not run here")
    weights = folder.finalists / candidate.hash / WEIGHTS
    teacher = Teacher(f"{_name(candidate)} of run {folder.path.name}", candidate.structure, weights, from_start=True)
    try:
        teacher.network(task)
    except (ConstructibilityError, RuntimeError, OSError, EOFError, TypeError, pickle.UnpicklingError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise _unfit(path, f"the weights of its winner cannot be read: {reason}") from error
    return teacher


def _name(candidate: Candidate) -> str:
    return f"#{candidate.number} ({candidate.hash})"


def _unfit(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"{KEY}: {path} cannot teach: {reason}.")
