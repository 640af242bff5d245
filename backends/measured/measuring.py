"""One firmware on one leased board: answers compared with onnxruntime's, figures between its first and last line."""

import secrets
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import serial

from automcu_ray.core.errors import BoardError
from automcu_ray.core.feasibility import FeasibilityReport, Measured, Rung, Violation
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.records.attempt import Figures
from backends.boards.agreement import compare
from backends.boards.base import Board, ask, greet
from backends.boards.pool import BoardEntry
from backends.instruments.recording import recorder
from backends.instruments.trace import ThermalTrace


class Differs(Exception):
    """The board's outputs are not onnxruntime's."""


def measure(
    board: Board,
    entry: BoardEntry,
    elf: Path,
    target: McuTarget,
    deployed: DeployedNetwork,
    inputs: int,
    locks: Path,
) -> Measured:
    """Return what an inference costs on a board: the largest latency, the mean energy, the largest samples.

    Inputs are noise, drawn when it runs. The trace is cut at the first input and the last answer (paper 001, appendix
    D): transfers by the serial port are part of energy and seconds, not of the latency, which the chip counts itself.

    Raises:
        BoardError: the board or the instrument beside it did not do as agreed.
        Differs: an output is not what onnxruntime gives.
    """
    rng = np.random.default_rng(secrets.randbits(62))
    images = rng.integers(0, 256, (inputs, *deployed.input_shape), dtype=np.uint8)
    payloads = [image.tobytes() for image in deployed.encode(images)]
    output_bytes = deployed.num_classes * deployed.output_dtype.itemsize
    with board.connect(elf, target) as port:
        try:
            greet(port, len(payloads[0]), output_bytes)
            with recorder(entry, locks)() as recording:
                answers = [ask(port, payload, output_bytes) for payload in payloads]
        except (serial.SerialException, OSError) as error:
            raise BoardError(f"the serial port broke: {error}") from error
    raw = b"".join(answer.output for answer in answers)
    outputs = np.frombuffer(raw, deployed.output_dtype.newbyteorder("<")).reshape(inputs, deployed.num_classes)
    agreement = compare(outputs, deployed.run(images), deployed.precision)
    if not agreement.agrees:
        raise Differs(
            f"board {entry.id!r} differs from onnxruntime by {agreement.largest_difference:g}: "
            f"{agreement.bit_equal} of {inputs} outputs are equal"
        )
    clock_hz, ticks = board.clock_hz(target), max(answer.ticks for answer in answers)
    found = recording.figures(Figures(), inputs)
    thermal = recording.trace if isinstance(recording.trace, ThermalTrace) else None
    return Measured(
        board=entry.id,
        instrument=entry.instrument or "",
        inputs=inputs,
        clock_hz=clock_hz,
        latency_ms=1000 * ticks / clock_hz if clock_hz and ticks else None,
        seconds=None if found.seconds is None else found.seconds / inputs,
        energy_mj=None if found.joules is None else 1000 * found.joules,
        current_ma=None if found.peak_amperes is None else 1000 * found.peak_amperes,
        temperature_c=None if thermal is None else thermal.peak_celsius,
    )


def over_limits(found: Measured, limits: Constraints) -> tuple[Violation, ...]:
    """Return a violation for each limit that a measured figure passes; what was not measured passes none."""
    rows = (
        ("latency", found.latency_ms, limits.latency_ms, "ms", "an inference takes"),
        ("energy", found.energy_mj, limits.energy_mj, "mJ", "an input takes"),
        ("current", found.current_ma, limits.current_ma, "mA", "the supply's peak is"),
        ("temperature", found.temperature_c, limits.temperature_c, "degrees Celsius", "the peak is"),
    )
    return tuple(
        Violation(
            rung=Rung.BOARD,
            resource=name,
            message=f"{name}: {what} {figure:.4g} {unit} on board {found.board!r}, the limit {limit:g}",
        )
        for name, figure, limit, unit, what in rows
        if figure is not None and limit is not None and figure > limit
    )


def refused_by_boards(opinions: Sequence[FeasibilityReport]) -> str:
    """Return which limits a board's measurements pass; "" for none. What other toolchains refuse decides nothing."""
    return "; ".join(one.message for opinion in opinions for one in opinion.violations if one.rung is Rung.BOARD)


def lines(found: Measured) -> tuple[str, ...]:
    """Return the figures in words, a line each; what nothing measured is not told."""
    if found.reason:
        return (f"not measured: {found.reason}",)
    clock = f" at {found.clock_hz / 1e6:g} MHz" if found.clock_hz else ""
    rows = (
        ("latency", found.latency_ms, f"ms{clock}, the largest"),
        ("energy", found.energy_mj, "mJ an input, its transfer and its answer included"),
        ("peak current", found.current_ma, "mA"),
        ("peak temperature", found.temperature_c, "degrees Celsius"),
    )
    told = [f"{name} {figure:.4g} {unit}" for name, figure, unit in rows if figure is not None]
    by = f" and {found.instrument}" if found.instrument else ""
    return (f"board {found.board}{by}: all {found.inputs} outputs as onnxruntime's", *told)
