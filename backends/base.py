"""What every toolchain answers: `build` turns a deployed network into firmware and a feasibility report."""

import dataclasses
import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport, Violation
from automcu_ray.core.memory_map import MemoryMap
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.networks.graph import Graph
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.records.manifest import NetworkManifest
from automcu_ray.sizing import footprint
from backends.programs import Runner, apt_packages, missing, run_program


@dataclass(frozen=True)
class Firmware:
    """What a build leaves: the report always, files and folders for the user's own project, and what a board can run.

    `elf` is None where the network does not fit, and where the backend leaves building the firmware to the user.
    `emulated_elf` is the same firmware at the addresses of the target's emulator, where those are not the target's.
    """

    report: FeasibilityReport
    elf: Path | None
    sources: tuple[Path, ...]
    workdir: Path
    emulated_elf: Path | None = None

    @property
    def board_elf(self) -> Path | None:
        """What a board, emulated or real, runs."""
        return self.emulated_elf or self.elf

    def collect(self, folder: Path) -> None:
        """Copy what ships into a new folder: the sources and `firmware.elf`.

        Raises:
            ToolchainError: a link among them: it could bring any file of this machine into the bundle.
        """
        shipped = [path for source in self.sources for path in (source, *source.rglob("*"))]
        if links := [path.name for path in (*shipped, *filter(None, [self.elf])) if path.is_symlink()]:
            raise ToolchainError(f"what ships should be files and folders, found a link: {links[0]}.")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for source in self.sources:
            if source.is_dir():
                shutil.copytree(source, folder / source.name)
            else:
                shutil.copy(source, folder)
        if self.elf is not None:
            shutil.copy(self.elf, folder / "firmware.elf")


def check_bounds_of_whole_tensors(graph: Graph, task: Task) -> tuple[Violation, ...]:
    """Return what a toolchain refuses that keeps all weights at full width, and plans RAM in a way of its own.

    Flash is as in `footprint.check_bounds`; RAM must hold the tensors that exist whole, `footprint.min_ram_bytes`.
    """
    found = footprint.footprint(graph, task.precision)
    floor = footprint.min_ram_bytes(graph, task.precision)
    sound = dataclasses.replace(found, ram_lower_bound_bytes=floor)
    return footprint.check(sound, task.ram_limit_bytes, task.flash_limit_bytes)


@dataclass(frozen=True)
class Probe:
    """A firmware that answers ticks instead of classes, as uint32: two at its start, then one after each node.

    `weights` are the bytes of constants by node.
    """

    elf: Path
    nodes: tuple[str, ...]
    weights: dict[str, int]


class Backend(ABC):
    """A toolchain. It starts programs only through `self.run`, which logs them and which a test can replace.

    `programs` are the executables it needs, `measures` the figures it fills in a report; the rest stays None.
    `boards` are the kinds of boards that can run the ELF it builds. `on_demand`: `prepare` makes what is missing.
    `follows_bounds`: when a layer grows or shrinks, its sizes change by what `footprint`'s bounds change by.
    `decides`: it can be the one that a search asks; else it only gives second opinions of finalists.
    """

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    measures: frozenset[str]
    boards: ClassVar[tuple[str, ...]] = ()
    on_demand: ClassVar[bool] = False
    decides: ClassVar[bool] = True
    follows_bounds: bool = True

    def __init__(self, *, run: Runner = run_program) -> None:
        self.run = run

    def missing_programs(self) -> tuple[str, ...]:
        """Return the programs that this machine lacks; () means that the backend can build."""
        return missing(self.programs)

    def how_to_install(self) -> str:
        """Return the line that installs what is missing."""
        return f"apt install {apt_packages(self.missing_programs())}"

    def prepare(self) -> None:  # noqa: B027  # most have nothing to make
        """Make what is made on demand, before a run needs it.

        Raises:
            ToolMissingError: it cannot be made.
        """

    def unsuitable(self, task: Task) -> str:
        """Return why this backend cannot serve a task's target or precision; "" where it can."""
        return ""

    def check_bounds(self, graph: Graph, task: Task) -> tuple[Violation, ...]:
        """Return what this backend would refuse for certain, worked out without building anything.

        Every limit must be sound: what is refused here, `build` would refuse as well.
        """
        return footprint.check_bounds(graph, task)

    def accuracy(
        self, deployed: DeployedNetwork, task: Task, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]
    ) -> float | None:
        """Return the share of images that what ships answers rightly; None where it is not computed here.

        Then onnxruntime's share stands for it: c_qemu's firmware gives the same bytes, vela's and executorch's files
        differ from them by some steps of 256, which their report's notes say.

        Args:
            deployed: what ships.
            task: its target and constraints.
            images: (N, C, H, W).
            labels: the class of each image.
        """
        return None

    def profiled(
        self, deployed: DeployedNetwork, target: McuTarget, built: FeasibilityReport, workdir: Path
    ) -> Probe | None:
        """Return a firmware for the target's emulator that tells when each layer ends; None where none can be built.

        `built` is the report of the same network's own firmware.
        """
        return None

    def memory_map(self, deployed: DeployedNetwork, target: McuTarget, built: FeasibilityReport) -> MemoryMap | None:
        """Return where the firmware's intermediate results lie, in the names of nodes; None where it is not known.

        `built` is the report of the same network's own firmware.
        """
        return None

    def package(self, folder: Path, deployed: DeployedNetwork, task: Task, manifest: NetworkManifest) -> None:  # noqa: B027
        """Make of a bundle what its user takes home: an interface, projects, a README; most leave it as it is.

        The folder holds what `Firmware.collect` left, ONNX files, test vectors and the manifest.
        """

    def preparation(self, deployed: DeployedNetwork, task: Task) -> str:
        """Return what becomes the network's input, and how, in sentences; "" where the backend does not say."""
        return ""

    @abstractmethod
    def version(self) -> str:
        """Return the versions of the parts that decide a verdict; a cached verdict holds for one version."""

    @abstractmethod
    def build(self, deployed: DeployedNetwork, target: McuTarget, constraints: Constraints, workdir: Path) -> Firmware:
        """Return the firmware of a network; too large is a report with violations, not an error.

        Args:
            deployed: what ships.
            target: the board; its core, regions and serial port.
            constraints: limits below the target's own sizes.
            workdir: an existing folder for sources, objects and `commands.log`.

        Raises:
            ToolchainError: the toolchain broke on this network.
            ToolMissingError: a program is missing.
        """
