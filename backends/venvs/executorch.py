"""ExecuTorch on a Cortex-M: the network as a .pte program of CMSIS-NN calls, planned ahead of time.

PyTorch's packages hold the compiler and no Arm runtime: nothing is linked or run, time and stack are not known.
"""

from pathlib import Path

from pydantic import NonNegativeInt, PositiveInt, ValidationError

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import Violation
from automcu_ray.core.models import FrozenModel
from automcu_ray.networks.graph import Graph
from automcu_ray.problem.target import McuTarget
from automcu_ray.problem.task import Task
from backends.base import check_bounds_of_whole_tensors
from backends.venvs.base import Compiled, VenvBackend
from backends.venvs.environment import ENVIRONMENTS

_REPORT_BYTES = 1 << 16
PROGRAM, REPORT = "net.pte", "pte.json"
CMSIS_NN = "cortex_m::"


class ExecutorchBackend(VenvBackend):
    """An int8 graph as ExecuTorch's Cortex-M backend lowers it, for the CMSIS-NN kernels of the target's core.

    `ram_bytes` is the planned arena (activations, scratch, input and output), `flash_bytes` the .pte file; the
    runtime's own memory, its code and the kernels come on top.
    """

    name = "executorch"
    programs = ("virtual environment 'executorch'",)
    environment = ENVIRONMENTS["executorch"]
    program = "write_pte.py"
    products = (PROGRAM, REPORT)

    def check_bounds(self, graph: Graph, task: Task) -> tuple[Violation, ...]:
        """The .pte holds all weights; ExecuTorch's planner is its own."""
        return check_bounds_of_whole_tensors(graph, task)

    def arguments(self, target: McuTarget) -> tuple[str, ...]:
        return (target.core.rstrip("fd"),)  # the float unit does not matter to int8 kernels

    def compile(self, target: McuTarget, workdir: Path) -> Compiled:
        report = read_report(workdir / REPORT)
        program = workdir / PROGRAM
        if program.is_symlink() or not program.is_file():
            raise ToolchainError(f"executorch should write {program.name}, found none.")
        portable = {name: count for name, count in report.kernels.items() if not name.startswith(CMSIS_NN)}
        calls = sum(report.kernels.values()) - sum(portable.values())
        named = ", ".join(f"{name} x{count}" for name, count in sorted(portable.items()))
        return Compiled(
            ram_bytes=report.planned_bytes,
            flash_bytes=program.stat().st_size,
            notes=(
                f"{calls} calls of Cortex-M kernels for {target.core}",
                f"on portable kernels: {named or 'none'}",
                "ExecuTorch's runtime and kernels are not counted: RAM is the planned arena, Flash the .pte file",
            ),
            sources=(program, workdir / REPORT),
        )


class ProgramReport(FrozenModel):
    """What is in a .pte: calls by kernel, and the bytes that were planned for activations."""

    kernels: dict[str, PositiveInt]
    planned_bytes: NonNegativeInt


def read_report(path: Path) -> ProgramReport:
    """Return what the program in the environment says about the .pte that it wrote.

    Raises:
        ToolchainError: there is no such report, or it cannot be read.
    """
    try:
        if path.is_symlink() or path.stat().st_size > _REPORT_BYTES:
            raise OSError("not a small file")
        return ProgramReport.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ToolchainError(f"executorch should leave a report, {path.name}: {str(error).splitlines()[0]}.") from error
