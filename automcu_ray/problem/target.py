"""Targets and constraints as data: what a board has, and what a user allows.

KB means 1024 bytes everywhere in this project (`BYTES_PER_KB`); MB is not used.
"""

from typing import Literal

from pydantic import Field

from automcu_ray.core.models import FiniteModel, FrozenModel
from automcu_ray.problem.accelerator import Accelerator

BYTES_PER_KB = 1024

# "f" has an FPU in single precision, "d" in double as well; cortex-m55d has vector instructions (MVE), too.
# xtensa-lx7 (ESP32-S3) is known to the arena alone: no toolchain here builds for it but its vendor's.
Core = Literal[
    "cortex-m0",
    "cortex-m0plus",
    "cortex-m3",
    "cortex-m4f",
    "cortex-m7f",
    "cortex-m7d",
    "cortex-m33f",
    "cortex-m55d",
    "xtensa-lx7",
]


# What a chip's boot ROM looks for in the Flash: `backends/c_qemu/firmware/boot_<name>.c` holds it.
Boot = Literal["rp2040", "rp2350"]


class MemoryRegion(FrozenModel):
    """One contiguous range of addresses, as a linker script names it."""

    origin: int = Field(ge=0)
    size_kb: float = Field(gt=0)
    source: str

    @property
    def size_bytes(self) -> int:
        """Size in bytes."""
        return round(self.size_kb * BYTES_PER_KB)


class Write(FrozenModel):
    """A value that is written to a register of 32 bits."""

    address: int = Field(ge=0, lt=1 << 32, multiple_of=4)
    value: int = Field(ge=0, lt=1 << 32)


class Wait(FrozenModel):
    """A register of 32 bits that is read until all bits of `until` are set in it."""

    address: int = Field(ge=0, lt=1 << 32, multiple_of=4)
    until: int = Field(gt=0, lt=1 << 32)


class Uart(FrozenModel):
    """A serial port that the firmware can drive; `none` means a firmware without one.

    `setup` is what the firmware writes before it speaks: clock gates and pins; a wait is for what takes its time, such
    as a crystal. `clock_hz` is the clock that the port
    and the core have as the chip leaves reset, of which the baud rate is made: the firmware starts no PLL. Without it
    the baud rate is what `setup` makes it; an emulated port needs neither. `wiring` tells a user where its pins are.
    """

    kind: Literal["stm32_v1", "stm32_v2", "cmsdk", "nrf51", "pl011", "none"] = "none"
    base: int = Field(default=0, ge=0, lt=1 << 32)
    clock_hz: int | None = Field(default=None, gt=0, lt=1 << 32)
    setup: tuple[Write | Wait, ...] = Field(default=(), max_length=32)
    wiring: str = Field(default="", pattern=r"^[A-Za-z0-9 .,;:()/-]{0,160}$")
    source: str = ""


class Uf2(FrozenModel):
    """How a board takes a firmware that is copied onto the drive which it shows over USB.

    `family` tells its boot loader for whom a file is, `drive` tells a user how the drive comes to be seen.
    """

    family: int = Field(ge=0, lt=1 << 32)
    drive: str = Field(pattern=r"^[A-Za-z0-9 .,;:()/-]{1,160}$")
    source: str


class TimingPin(FrozenModel):
    """A pin whose falling edge a power monitor takes for a time stamp; `setup` makes it an output, after `high`."""

    name: str
    high: Write
    low: Write
    setup: tuple[Write, ...] = Field(default=(), max_length=32)
    source: str


class Emulator(FrozenModel):
    """A machine of QEMU that runs the target's code.

    With `same_chip` it has the target's memory map and serial port, so that the target's own ELF runs there. Without,
    it has the target's core, or one that knows all its instructions, and the firmware is linked a second time, for
    that machine. Sizes come from the target's own link in any case.
    """

    machine: str
    same_chip: bool = False
    source: str


class CyclesPerInstruction(FrozenModel):
    """How many clock cycles an instruction of a network takes on average, as somebody measured it."""

    value: float = Field(gt=0)
    source: str


class McuTarget(FrozenModel):
    """A microcontroller as data; every number carries its source.

    `ram` lists contiguous regions. Data, arena and stack go to the first one, since a buffer cannot
    straddle a gap; the others are documented and left to the user's application. `boot` is what its boot ROM wants in
    the Flash beside the vector table; it counts as the firmware's.
    """

    name: str
    description: str
    core: Core
    clock_hz: int = Field(gt=0)
    clock_source: str
    ram: dict[str, MemoryRegion] = Field(min_length=1)
    flash: MemoryRegion
    boot: Boot | None = None
    uf2: Uf2 | None = None
    uart: Uart = Uart()
    timing_pin: TimingPin | None = None
    emulator: Emulator | None = None
    accelerator: Accelerator | None = None
    cycles_per_instruction: CyclesPerInstruction | None = None

    def latency_ms(self, instructions: int | None) -> float | None:
        """Return the time that so many instructions are estimated to take; None where their cycles are not known."""
        if instructions is None or self.cycles_per_instruction is None:
            return None
        return instructions * self.cycles_per_instruction.value / self.clock_hz * 1000

    @property
    def mark(self) -> Literal["emulated", "build only", "vendor"]:
        """What can be had for it: outputs from an emulator, sizes only, or what its vendor's own toolchain offers."""
        if self.emulator is not None:
            return "emulated"
        return "vendor" if self.accelerator is not None else "build only"

    @property
    def main_ram(self) -> MemoryRegion:
        """The region that holds data, arena and stack."""
        return next(iter(self.ram.values()))


class Constraints(FiniteModel):
    """Hard limits `C` (paper 000, section III-B); None means the target's own size, and for all others no limit.

    `instructions_m` is in millions for one inference, as an emulated board counts them. `latency_ms` limits them as
    well, where the target says how many cycles one takes: it is an estimate. `accuracy` is the least that a finalist
    must reach on validation images, where the objective is a cost. `metric` is the same in the unit of another metric
    that the task names: the least R2 or AUC, the largest mean absolute error. `latency_ms`, `energy_mj`, `current_ma`
    (peak) and `temperature_c` (peak) are limits of finalists where a board from the map measures them (`Measured`).
    """

    ram_kb: float | None = Field(default=None, gt=0)
    flash_kb: float | None = Field(default=None, gt=0)
    instructions_m: float | None = Field(default=None, gt=0)
    latency_ms: float | None = Field(default=None, gt=0)
    energy_mj: float | None = Field(default=None, gt=0)
    current_ma: float | None = Field(default=None, gt=0)
    temperature_c: float | None = Field(default=None, gt=-60, lt=400)
    accuracy: float | None = Field(default=None, gt=0, lt=1)
    metric: float | None = Field(default=None, gt=0)

    def ram_limit_bytes(self, target: McuTarget) -> int:
        """Return the RAM a firmware may use, in bytes: the smaller of the limit and the region."""
        return _limit(self.ram_kb, target.main_ram)

    def flash_limit_bytes(self, target: McuTarget) -> int:
        """Return the Flash a firmware may use, in bytes: the smaller of the limit and the region."""
        return _limit(self.flash_kb, target.flash)

    def instructions_limit(self, target: McuTarget) -> int | None:
        """Return the instructions that an inference may take, by both limits on them; None where there is none."""
        limits = [] if self.instructions_m is None else [self.instructions_m * 1e6]
        if self.latency_ms is not None and target.cycles_per_instruction is not None:
            limits.append(self.latency_ms / 1000 * target.clock_hz / target.cycles_per_instruction.value)
        return int(min(limits)) if limits else None


def _limit(limit_kb: float | None, region: MemoryRegion) -> int:
    size = region.size_bytes
    return size if limit_kb is None else min(size, round(limit_kb * BYTES_PER_KB))
