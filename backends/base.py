"""What every toolchain answers: `build` turns a deployed network into firmware and a feasibility report."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from automcu_ray.export import DeployedNetwork
from automcu_ray.feasibility import FeasibilityReport
from automcu_ray.target import Constraints, McuTarget
from backends.programs import Runner, missing, run_program


@dataclass(frozen=True)
class Firmware:
    """What a build leaves: the report always, the ELF only if it fits, sources for the user's own project."""

    report: FeasibilityReport
    elf: Path | None
    sources: tuple[Path, ...]
    workdir: Path


class Backend(ABC):
    """A toolchain. It starts programs only through `self.run`, which logs them and which a test can replace.

    `programs` are the executables it needs, `measures` the figures it fills in a report; the rest stays None.
    """

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    measures: ClassVar[frozenset[str]]

    def __init__(self, *, run: Runner = run_program) -> None:
        self.run = run

    def missing_programs(self) -> tuple[str, ...]:
        """Return the programs that this machine lacks; () means that the backend can build."""
        return missing(self.programs)

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
