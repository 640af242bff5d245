"""What the ladder answers: `M(a;C)`, the feasibility report (paper 000, equation 4)."""

from enum import StrEnum
from typing import Self

from pydantic import Field

from automcu_ray.core.models import FrozenModel, Int64


class Rung(StrEnum):
    """The ordered questions of the ladder, cheapest first."""

    SCHEMA = "schema"
    SHAPES = "shapes"
    ANALYTIC = "analytic"
    CONVERT = "convert"
    LINK = "link"
    EMULATE = "emulate"
    VENDOR = "vendor tool"
    BOARD = "board"


class Change(FrozenModel):
    """One field of a spec with another value: `where` reads `layer_4.out_channels`."""

    where: str
    before: Int64 | float
    after: Int64 | float

    def __str__(self) -> str:
        return f"{self.where} {self.before:g} -> {self.after:g}"


class Violation(FrozenModel):
    """One reason for a no: which rung, where, how far off, and the smallest change that would help.

    `resource` is ram, flash, instructions, operator, schema, shape, tool (the toolchain broke) or engine (no usable
    reply); of a board latency, energy, current, temperature or outputs; for generated code also memory, time or sandbox
    (it left its bounds); an accelerator's are weight_memory, bias_memory, data_memory, layers and channels. `where`
    names the layer, buffer or operator. `fix` is the smallest change of one field that is predicted to fit; None where
    no single one does, or none was looked for.
    """

    rung: Rung
    resource: str
    where: str = ""
    found_bytes: Int64 | None = None
    limit_bytes: Int64 | None = None
    found_instructions: Int64 | None = None
    limit_instructions: Int64 | None = None
    message: str
    fix: Change | None = None

    @property
    def over_bytes(self) -> int | None:
        """Bytes over the limit, or None where bytes are not the question."""
        if self.found_bytes is None or self.limit_bytes is None:
            return None
        return self.found_bytes - self.limit_bytes

    @property
    def found(self) -> int | None:
        """What is needed, in bytes or instructions; None where amounts are not the question."""
        return self.found_instructions if self.found_bytes is None else self.found_bytes

    @property
    def limit(self) -> int | None:
        """What there is, in bytes or instructions."""
        return self.limit_instructions if self.limit_bytes is None else self.limit_bytes

    @property
    def over(self) -> int | None:
        """Bytes or instructions over the limit, or None where amounts are not the question."""
        return None if self.found is None or self.limit is None else self.found - self.limit


def over_limit(
    rung: Rung, resource: str, where: str, need: int, limit: int, *, what: str = "", part: str = ""
) -> Violation:
    """Return the violation of a limit in bytes.

    Args:
        rung: which rung found it.
        resource: what is too small.
        where: the layer, buffer or operator to shrink first.
        need: bytes that are needed.
        limit: bytes that there are.
        what: what needs them alone; "" for everything together.
        part: how the message goes on: which part is the largest.
    """
    needs = f"{resource}: {what} alone need" if what else f"{resource} needs"
    return Violation(
        rung=rung,
        resource=resource,
        where=where,
        found_bytes=need,
        limit_bytes=limit,
        message=f"{needs} {need} bytes, {need - limit} more than the limit of {limit}{part}",
    )


def too_slow(where: str, found: int, limit: int, *, part: str = "") -> Violation:
    """Return the violation of the limit of instructions, found by the rung `emulate`; arguments as of `over_limit`."""
    return Violation(
        rung=Rung.EMULATE,
        resource="instructions",
        where=where,
        found_instructions=found,
        limit_instructions=limit,
        message=f"an inference takes {found:,} instructions, {found - limit:,} more than the limit of {limit:,}{part}",
    )


class LayerCost(FrozenModel):
    """What one layer costs: its share of the instructions, and the bytes of its weights."""

    layer: str
    instructions: Int64
    weights_bytes: Int64


class RamUsage(FrozenModel):
    """RAM of a linked firmware, in bytes; the parts add up to `total_bytes`.

    A vendor's tool that leaves the stack to the user's project counts none: there `stack_bytes` is 0. `spare_bytes` of
    the arena make the network faster, and nothing but the limit asks for fewer.
    """

    arena_bytes: Int64
    io_bytes: Int64
    stack_bytes: Int64
    data_bss_bytes: Int64
    total_bytes: Int64
    spare_bytes: Int64 = 0

    @property
    def least(self) -> Self:
        """The same without `spare_bytes`: what the network needs."""
        arena_bytes, total_bytes = self.arena_bytes - self.spare_bytes, self.total_bytes - self.spare_bytes
        return self.replace(arena_bytes=arena_bytes, total_bytes=total_bytes, spare_bytes=0)


class FlashUsage(FrozenModel):
    """Flash of a linked firmware, in bytes; the parts add up to `total_bytes`.

    `code_bytes` is the generated network, `weights_bytes` its constants, `runtime_bytes` start-up, serial
    harness and C library.
    """

    code_bytes: Int64
    weights_bytes: Int64
    runtime_bytes: Int64
    total_bytes: Int64


class Estimate(FrozenModel):
    """Sizes that nobody has measured, in bytes, with the error that 19 of 20 such estimates keep to.

    `instructions` is per inference, without its error; None where nothing is known of the core.
    """

    ram_bytes: Int64
    flash_bytes: Int64
    ram_error_bytes: Int64
    flash_error_bytes: Int64
    instructions: Int64 | None = None

    def exceeds(self, ram_limit_bytes: int, flash_limit_bytes: int, instructions_limit: int | None = None) -> set[str]:
        """Return the resources that may well be too small for the network: the error counts against it."""
        rows = (
            ("ram", self.ram_bytes + self.ram_error_bytes, ram_limit_bytes),
            ("flash", self.flash_bytes + self.flash_error_bytes, flash_limit_bytes),
        )
        short = {resource for resource, need, limit in rows if need > limit}
        if instructions_limit is not None and self.instructions is not None and self.instructions > instructions_limit:
            short.add("instructions")
        return short


class Measured(FrozenModel):
    """What a board from the map measured of one inference; None for what nothing there measures.

    `latency_ms` is the network's alone, at the clock that the firmware runs at (`clock_hz`: it starts no PLL).
    `energy_mj` and `seconds` are of one input with its transfer and its answer, `current_ma` and `temperature_c` the
    largest samples meanwhile. `reason` says why there are no figures: that is the board's fault, never the network's.
    """

    board: str = ""
    instrument: str = ""
    inputs: Int64 = 0
    clock_hz: Int64 | None = None
    latency_ms: float | None = None
    seconds: float | None = None
    energy_mj: float | None = None
    current_ma: float | None = None
    temperature_c: float | None = None
    reason: str = ""


class FeasibilityReport(FrozenModel):
    """`M(a;C) = (RAM(a), Flash(a), status(a))`: what a backend measured; None where it could not.

    An infeasible report may still know the totals (the linker says by how much it overflowed).
    `seconds_by_rung` holds CPU seconds. `instructions` (of one inference)
    and `stack_used_bytes` come from a board, emulated before training. `network_hash` is
    equal for equal networks written as different code; "" where the candidate's own hash says that already. `notes`
    are what a vendor's tool says beyond that, a line each: an accelerator's use, operators that fall back to the CPU.
    `measured` is a board's of the map, where it gives its opinion of a finalist.
    `estimate` stands where the ladder ended before anything was measured, and earlier verdicts tell of such networks.
    """

    feasible: bool
    backend: str
    rung: Rung
    ram_bytes: Int64 | None = None
    flash_bytes: Int64 | None = None
    ram: RamUsage | None = None
    flash: FlashUsage | None = None
    estimate: Estimate | None = None
    macs: Int64 | None = None
    parameters: Int64 | None = None
    operators: tuple[str, ...] = ()
    instructions: Int64 | None = None
    stack_used_bytes: Int64 | None = None
    measured: Measured | None = None
    violations: tuple[Violation, ...] = ()
    seconds_by_rung: dict[str, float] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cached: bool = False
    network_hash: str = ""

    @property
    def least_ram_bytes(self) -> int | None:
        """RAM that the network needs: without what makes it faster alone. By it networks are compared."""
        return self.ram_bytes if self.ram is None else self.ram.least.total_bytes

    @property
    def fixes(self) -> tuple[Change, ...]:
        """What its violations ask for, each change once."""
        return tuple(dict.fromkeys(violation.fix for violation in self.violations if violation.fix is not None))
