"""Ethos-U55 and U65, Arm's accelerators beside a Cortex-M: the network as TensorFlow Lite, compiled by Arm's Vela.

Cycles and milliseconds are Vela's estimate from its own model of the accelerator and of the memories that
`system_config` names; nothing is run.
"""

import csv
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import Violation
from automcu_ray.networks.graph import Graph
from automcu_ray.problem.target import BYTES_PER_KB, McuTarget
from automcu_ray.problem.task import Task
from backends.programs import Runner, run_program
from backends.venvs.base import Compiled, VenvBackend
from backends.venvs.environment import ENVIRONMENTS

MODEL, OUTPUT = "net.tflite", "vela"
Accelerator = Literal[
    "ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256", "ethos-u65-256", "ethos-u65-512"
]
_SUMMARY_BYTES = 1 << 20
_COUNT = re.compile(r"^(CPU|NPU) operators = (\d{1,9}) ", re.MULTILINE)
_ON_CPU = re.compile(r"^ +CPU: (\S+) = (.+) \(outputs .*\)$", re.MULTILINE)
_WARNING = re.compile(r"operator: (\w+), ofm: '(.+)'\nReason: (.+)$", re.MULTILINE)
_MEMORIES = ("sram", "dram", "on_chip_flash", "off_chip_flash")


class VelaBackend(VenvBackend):
    """TensorFlow Lite with the scored quantisation, through Vela: memory, operators by processor, estimated cycles.

    `ram_bytes` is SRAM and DRAM together, `flash_bytes` the compiled file. `system_config` and `memory_mode` are names
    from Vela's own `Arm/vela.ini`; None is what Vela takes for the accelerator. Vela trades SRAM for speed: what does
    not fit may with `optimise` Size (one sample needs 16 KB then instead of 30, and a third more cycles).
    """

    name = "vela"
    programs = ("virtual environment 'vela'",)
    environment = ENVIRONMENTS["vela"]
    program = "write_tflite.py"
    products = (MODEL, OUTPUT)
    follows_bounds = False

    def __init__(
        self,
        *,
        accelerator: Accelerator = "ethos-u55-128",
        system_config: str | None = None,
        memory_mode: str | None = None,
        optimise: Literal["Performance", "Size"] = "Performance",
        run: Runner = run_program,
    ) -> None:
        super().__init__(run=run)
        self.accelerator = accelerator
        named = {"--system-config": system_config, "--memory-mode": memory_mode, "--optimise": optimise}
        self.flags = [word for flag, name in named.items() if name is not None for word in (flag, name)]

    def check_bounds(self, graph: Graph, task: Task) -> tuple[Violation, ...]:
        """Nothing is certain: Vela compresses weights, and computes maps in stripes that never exist whole."""
        return ()

    def version(self) -> str:
        return f"{super().version()}, {' '.join([self.accelerator, *self.flags])}"

    def arguments(self, target: McuTarget) -> tuple[str, ...]:
        return ()

    def compile(self, target: McuTarget, workdir: Path) -> Compiled:
        argv = ["-m", "ethosu.vela", MODEL, "--accelerator-config", self.accelerator, *self.flags]
        said = self.python([*argv, "--output-dir", OUTPUT, "--show-cpu-operations"], workdir)
        paths = sorted((workdir / OUTPUT).glob("net_summary_*.csv"))
        if len(paths) != 1 or paths[0].is_symlink() or paths[0].stat().st_size > _SUMMARY_BYTES:
            raise ToolchainError(f"vela should write one small summary, found {[path.name for path in paths]}.")
        found = read_summaries(paths[0].read_text(errors="replace"))
        wanted = self.accelerator.replace("-", "_").replace("ethos_u", "Ethos_U")
        if [(one.network, one.accelerator) for one in found] != [("net", wanted)]:
            raise ToolchainError(f"vela's summary should be of 'net' on {wanted}, found {found}.")
        summary = found[0]
        file = workdir / OUTPUT / "net_vela.tflite"
        if file.is_symlink() or not file.is_file():
            raise ToolchainError(f"vela should write {file.name}, found none.")
        return Compiled(
            ram_bytes=summary.sram_bytes + summary.dram_bytes,
            flash_bytes=file.stat().st_size,
            notes=(f"{target.name} is taken to have an {self.accelerator}", *summary.notes(), *operator_notes(said)),
            sources=(workdir / MODEL, file, *paths),
        )


@dataclass(frozen=True)
class Summary:
    """A row of Vela's summary; `cycles` are estimated, None where nothing runs on the accelerator."""

    network: str
    accelerator: str
    system_config: str
    memory_mode: str
    clock_hz: float
    sram_bytes: int
    dram_bytes: int
    on_chip_flash_bytes: int
    off_chip_flash_bytes: int
    cycles: int | None

    @property
    def latency_ms(self) -> float | None:
        """Milliseconds on the accelerator as Vela estimates them; what falls back to the CPU is left out."""
        return None if self.cycles is None else 1000 * self.cycles / self.clock_hz

    def notes(self) -> tuple[str, ...]:
        """Return the figures as lines."""
        flash = self.on_chip_flash_bytes + self.off_chip_flash_bytes
        memory = f"SRAM {self.sram_bytes} bytes, DRAM {self.dram_bytes} bytes, constants in Flash {flash} bytes"
        where = f"{self.system_config}, {self.memory_mode}"
        if self.cycles is None:
            return (f"{where}: {memory}", "no cycles to estimate: nothing runs on the accelerator")
        time = f"{self.cycles} cycles, {self.latency_ms:.3f} ms at {self.clock_hz / 1e6:g} MHz"
        return (f"{where}: {memory}", f"estimated by Vela, not measured: {time} on the accelerator")


def read_summaries(text: str) -> list[Summary]:
    """Return the rows of a summary CSV, of this or another project's run of Vela.

    Raises:
        ToolchainError: no row, a row that is cut, a column that is missing, a figure that cannot be.
    """
    try:
        lines = list(csv.reader(text.splitlines()))
    except csv.Error as error:  # a field of more than 128 KB
        raise ToolchainError(f"vela's summary is no CSV: {error}.") from error
    if len(lines) < 2 or len(set(lines[0])) != len(lines[0]):
        raise ToolchainError(f"vela's summary should have a header and a row, found {text[:100]!r}.")
    found = []
    for line in lines[1:]:
        if len(line) != len(lines[0]):
            raise ToolchainError(f"a row of vela's summary should have {len(lines[0])} fields, found {len(line)}.")
        found.append(_summary(dict(zip(lines[0], line, strict=True))))
    return found


def _summary(row: dict[str, str]) -> Summary:
    try:
        clock_hz, seconds = float(row["core_clock"]), float(row["inference_time"])
        cycles = _whole(float(row["cycles_total"]))
        sizes = {f"{name}_bytes": _whole(BYTES_PER_KB * float(row[f"{name}_memory_used"])) for name in _MEMORIES}
        if not (math.isfinite(clock_hz) and clock_hz > 0 and math.isclose(seconds * clock_hz, cycles, rel_tol=1e-6)):
            raise ValueError(f"{cycles} cycles at {clock_hz} Hz are not {seconds} s")
        return Summary(
            network=row["network"],
            accelerator=row["accelerator_configuration"],
            system_config=row["system_config"],
            memory_mode=row["memory_mode"],
            clock_hz=clock_hz,
            cycles=cycles or None,
            **sizes,
        )
    except KeyError as error:
        raise ToolchainError(f"vela's summary has no column {error}.") from error
    except (ValueError, OverflowError) as error:
        raise ToolchainError(
            f"vela's summary of {row.get('network', '')[:80]!r} cannot be: {str(error)[:200]}."
        ) from error


def _whole(value: float) -> int:
    """Return a count that was written as a float."""
    if value < 0 or abs(value - round(value)) > 1e-6:
        raise ValueError(f"{value} is no count")
    return round(value)


def operator_notes(said: str) -> tuple[str, ...]:
    """Return how many operators run on the accelerator, and those that fall back to the CPU, each with the reason.

    Raises:
        ToolchainError: it does not say so, or names fewer or more than it counts.
    """
    counts = {processor: int(count) for processor, count in _COUNT.findall(said)}
    reasons = {ofm: (operator, reason.strip()) for operator, ofm, reason in _WARNING.findall(said)}
    on_cpu = []
    for kind, ofm in _ON_CPU.findall(said):
        operator, reason = reasons.get(ofm, (kind, "Vela gives no reason"))
        on_cpu.append(f"{operator} {ofm}: {reason}")
    if counts.keys() != {"CPU", "NPU"} or counts["CPU"] != len(on_cpu):
        raise ToolchainError(f"vela should name the operators that it counts, found {counts} and {on_cpu}.")
    counted = f"{counts['NPU']} operators on the accelerator, {len(on_cpu)} on the CPU"
    return (counted, *(f"on the CPU: {one}" for one in on_cpu))
