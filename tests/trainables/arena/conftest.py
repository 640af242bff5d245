"""A task of the arena on a small network, and what its seed artifact is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from automcu_ray.problem.arena import ArenaTask, task_of
from automcu_ray.records.attempt import Observation
from automcu_ray.runtime.config_files import load
from backends.boards.qemu import QemuBoard
from trainables.arena.checks import Examination
from trainables.arena.workload import Workload, prepare, write_seed

Examine = Callable[..., Observation]


def read_task(name: str = "qemu_speed") -> ArenaTask:
    text = load("arena", name)
    return task_of(name, {**text, "target": load("target", text["target"])})


@pytest.fixture(scope="session")
def arena_task() -> ArenaTask:
    """qemu_speed with few inputs and a network that is trained in a second."""
    task = read_task()
    few = task.feasibility.replace(random_inputs=3, images=3, run_seconds=10)
    network = {"backbone": [{"type": "conv", "out_channels": 4, "stride": 2}, {"type": "max_pool"}]}
    training = task.workload.training.replace(epochs=2)
    workload = type(task.workload).model_validate({"network": network, "training": training})
    return task.replace(feasibility=few, workload=workload)


@pytest.fixture(scope="session")
def workload(arena_task: ArenaTask, tmp_path_factory: pytest.TempPathFactory) -> Workload:
    return prepare(arena_task, tmp_path_factory.mktemp("workload"))


@pytest.fixture(scope="session")
def seed(arena_task: ArenaTask, workload: Workload, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of the seed artifact."""
    folder = tmp_path_factory.mktemp("seed") / "artifact"
    write_seed(arena_task, workload, folder, folder.with_name("tools"))
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.fixture
def examine(arena_task: ArenaTask, workload: Workload, tmp_path: Path, qemu: None) -> Examine:
    """Put an artifact, given as files, through the checks on the emulated board."""

    def through(files: dict[str, str], name: str = "one", timeout_s: float = 20) -> Observation:
        folder = tmp_path / name / "artifact"
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text)
        examination = Examination(arena_task, workload, QemuBoard(timeout_s=timeout_s))
        return examination.observe(1, folder, folder.with_name("build"))

    return through
