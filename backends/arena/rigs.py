"""How an artifact becomes firmware on a kind of board: our own harness for QEMU, or a vendor's project and tools."""

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from automcu_ray.core.errors import ToolMissingError
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.arena import ArenaTask
from automcu_ray.problem.artifact import OPTIONS
from automcu_ray.runtime import plugins
from backends.arena.build import BOOT_DELAY_TICKS, PROGRAMS, Built, build, machine_of
from backends.boards.qemu import QEMU
from backends.c_qemu.cgen import generate
from backends.c_qemu.form import Form
from backends.programs import how_to_get, missing

RIGS = {
    "qemu": "backends.arena.rigs:QemuRig",
    "max78000": "backends.arena.max78000:Max78000Rig",
    "esp32s3": "backends.arena.esp32s3:Esp32S3Rig",
    "stm32n6": "backends.arena.stm32n6:Stm32N6Rig",
}


class ArenaRig(ABC):
    """A way to build an artifact; one task, one rig.

    `delay_ticks` is the boot delay that the firmware tells, `preamble_lines` how many lines a chip may print before.
    `talks`: its firmware speaks the arena's serial protocol.
    """

    name: ClassVar[str]
    delay_ticks: ClassVar[int]
    preamble_lines: ClassVar[int] = 0
    talks: ClassVar[bool] = True

    def __init__(self, task: ArenaTask) -> None:
        self.task = task

    @abstractmethod
    def lacking(self) -> list[str]:
        """Return what is missing on this machine, each with where it comes from; [] means that it can build."""

    @abstractmethod
    def build(self, artifact: Path, workdir: Path, input_bytes: int, output_bytes: int) -> Built:
        """Return the firmware of an artifact of C files, built in a new folder `workdir`.

        Raises:
            ToolchainError: it does not build; the message is the tools' diagnosis.
            ToolMissingError: a program or an SDK is missing.
        """

    def reference(self, deployed: DeployedNetwork, images: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Return what a network answers on this board for images (N, C, H, W), bit for bit."""
        return deployed.run(images)

    def output_type(self, deployed: DeployedNetwork) -> np.dtype[Any]:
        """Return the type of one value of its answers."""
        return deployed.output_dtype

    def write_seed(self, deployed: DeployedNetwork, folder: Path, workdir: Path) -> None:
        """Write a network as a seed artifact into the new `folder`: plain C for any core, ours for size.

        What the vendor's tools need meanwhile lies in the new `workdir`.
        """
        folder.mkdir(parents=True)
        code = generate(deployed, form=Form("small"))
        (folder / "net.c").write_text(code.source)
        (folder / "net.h").write_text(code.header)
        (folder / OPTIONS).write_text("stack_bytes: 2048\n")

    def require(self) -> None:
        """Raise ToolMissingError, once for all that is missing."""
        if absent := self.lacking():
            raise ToolMissingError(
                f"rig {self.name!r} needs {'; '.join(absent)}. `automcu doctor` lists what this machine can run; "
                "the tasks qemu_speed, qemu_ram and qemu_compress need no hardware."
            )


class QemuRig(ArenaRig):
    """Our harness around the artifact, guarded by the MPU, on an emulated Cortex-M3, M4 or M7."""

    name = "qemu"
    delay_ticks = BOOT_DELAY_TICKS

    def lacking(self) -> list[str]:
        machine_of(self.task.target)
        return programs_lacking(*PROGRAMS, QEMU)

    def build(self, artifact: Path, workdir: Path, input_bytes: int, output_bytes: int) -> Built:
        return build(
            artifact,
            workdir,
            target=self.task.target,
            constraints=self.task.constraints,
            input_bytes=input_bytes,
            output_bytes=output_bytes,
        )


def rig_of(task: ArenaTask) -> ArenaRig:
    """Return the rig of a task."""
    rig: ArenaRig = plugins.load("rig", RIGS, task.rig.name)(task)
    return rig


def programs_lacking(*programs: str) -> list[str]:
    """Return the programs that are not on PATH, each with where it comes from."""
    return [f"{program}{how_to_get(program)}" for program in missing(programs)]


def sdk_of(given: str | None, variable: str) -> Path | None:
    """Return the folder of a vendor's SDK: the one given, else where an environment variable points, if it exists."""
    found = given or os.environ.get(variable)
    path = Path(found).expanduser().resolve() if found else None
    return path if path is not None and path.is_dir() else None
