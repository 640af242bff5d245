"""A leased board from the map as a second opinion: a finalist's time, energy, current and temperature, measured."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from automcu_ray.core.errors import BoardError, ConfigError, ToolMissingError
from automcu_ray.core.feasibility import Measured, Rung, Violation
from automcu_ray.core.models import rule
from automcu_ray.core.yaml_text import parse_yaml
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.runtime import plugins
from automcu_ray.sizing.verdict_cache import cache_root
from backends.base import Backend, Firmware
from backends.boards import make_board, power
from backends.boards.pool import BoardEntry, Pool, emulated
from backends.boards.qemu import QEMU
from backends.c_qemu.backend import CQemuBackend
from backends.instruments import INSTRUMENTS
from backends.measured.measuring import Differs, lines, measure, over_limits
from backends.programs import Runner, missing, run_confined

TRIES = 3  # of a talk that breaks off: on another board where there is one
LEASE_S, TALK_S = 3600.0, 120.0
_QUANTITIES = {"current": ("energy", "current"), "temperature": ("temperature",)}


class BoardBackend(Backend):
    """Builds a finalist by c_qemu, and runs it on a board of the map that is leased, guarded and given back.

    Inputs are drawn when it runs; each output must be onnxruntime's. A limit that is passed is a violation of the rung
    `board` and counts against the finalist; a board or an instrument that fails does not: its figures are then None,
    and the report says why. `measures` is what every board of the map can.

    Not tried on real hardware: tests put QEMU, a socket and recorded traces in its place. A clock that is not the
    chip's at reset is the target's own `setup` to make.

    Args:
        map: path of the map of boards; None: one emulated board. A board that is not emulated names its target in
            `platform`, lest another chip's firmware is written to it.
        inputs: how many inferences are measured.
        locks: where leases and faults are kept; None: with what all runs of this user share.
    """

    name = "board"
    programs = CQemuBackend.programs
    decides: ClassVar[bool] = False

    def __init__(
        self, *, map: str | None = None, inputs: int = 16, locks: str | None = None, run: Runner = run_confined
    ) -> None:
        super().__init__(run=run)
        if not 1 <= inputs <= 10_000:
            raise ConfigError(f"backend 'board': inputs should be 1 to 10000, found {inputs}.")
        self.inputs = inputs
        self.entries = emulated(1) if map is None else read_map(Path(map))
        self.locks = Path(locks) if locks else cache_root() / "boards"
        self.toolchain = CQemuBackend(run=run)
        self.measures = frozenset.intersection(*(_measures(entry) for entry in self.entries))

    def missing_programs(self) -> tuple[str, ...]:
        emulates = any(entry.runner == "qemu" for entry in self.entries)
        return missing((*self.programs, *([QEMU] if emulates else [])))

    def unsuitable(self, task: Task) -> str:
        fitting = self._fitting(task.target)
        if not fitting:
            return f"no board of the map has platform: {task.target.name}, and none of it can be emulated"
        if task.target.uart.kind == "none" and any(entry.runner != "qemu" for entry in fitting):
            return "its file tells of no serial port (uart) by which a real board could answer"
        return ""

    def version(self) -> str:
        boards = hashlib.sha256(repr(self.entries).encode()).hexdigest()[:8]
        return f"{self.toolchain.version()}, boards {boards}, {self.inputs} inputs"

    def build(self, deployed: DeployedNetwork, target: McuTarget, constraints: Constraints, workdir: Path) -> Firmware:
        made = self.toolchain.build(deployed, target, constraints, workdir)
        report = made.report.replace(backend=self.name)
        if not report.feasible:
            return Firmware(report, None, (), workdir)
        found, differs = self._measured(made, deployed, target)
        violations = over_limits(found, constraints)
        if differs:
            violations += (Violation(rung=Rung.BOARD, resource="outputs", message=differs),)
        report = report.replace(
            rung=Rung.BOARD,
            feasible=not violations,
            violations=violations,
            measured=found,
            notes=(*report.notes, *lines(found)),
        )
        return Firmware(report, made.elf, made.sources, workdir, made.emulated_elf)

    def _fitting(self, target: McuTarget) -> list[BoardEntry]:
        """Return the boards of the map that are this target, or can emulate it."""
        return [
            entry
            for entry in self.entries
            if (target.emulator is not None if entry.runner == "qemu" else entry.platform == target.name)
        ]

    def _measured(self, made: Firmware, deployed: DeployedNetwork, target: McuTarget) -> tuple[Measured, str]:
        """Return what was measured, or why nothing was; and how outputs differed, where they did two times."""
        pool, reason, differed = Pool(self._fitting(target), self.locks), "no board was tried", 0
        for _ in range(TRIES):
            try:
                with pool.lease(LEASE_S) as entry:
                    elf = made.board_elf if entry.runner == "qemu" else made.elf
                    assert elf is not None, "what fits has been linked"
                    try:
                        board = make_board(entry, TALK_S)
                        found = measure(board, entry, elf, target, deployed, self.inputs, self.locks / "instruments")
                        pool.works(entry.id)
                        return found, ""
                    except Differs as error:  # a byte may have been lost on its way: no CRC guards this protocol
                        reason, differed = str(error), differed + 1
                        if differed == 2:
                            return Measured(board=entry.id, reason=reason), reason
                    except (BoardError, ConfigError, ToolMissingError, OSError) as error:
                        reason = f"board {entry.id!r}: {error}"
                        if not pool.last_chance(entry.id) or power.cycle(entry):
                            pool.failed(entry.id, str(error))
            except BoardError as error:  # no board is left, or free
                return Measured(reason=f"{error} ({reason})"[:500]), ""
        return Measured(reason=reason[:500]), ""


def read_map(path: Path) -> tuple[BoardEntry, ...]:
    """Return the boards of a map.

    Raises:
        ConfigError: no such file, or what is in it is no map; options that an instrument does not have.
    """
    try:
        found = parse_yaml(path.read_text())
        listed = [BoardEntry.model_validate(one) for one in found["boards"]]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(f"{path}: {'.'.join(map(str, first['loc']))}: {rule(first)}.") from error
    except FileNotFoundError as error:
        raise ConfigError(f"no file {path}: give the path of a map of boards.") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: a map of boards is YAML with the key boards, a list: {error}.") from error
    entries = tuple(entry for entry in listed if entry.connected)
    if not entries:
        raise ConfigError(f"{path}: the map has no board that is connected.")
    for entry in entries:
        if entry.instrument is not None:
            made = plugins.load("instrument", INSTRUMENTS, entry.instrument)
            plugins.check_options("instrument", entry.instrument, made, entry.instrument_options)
    return entries


def _measures(entry: BoardEntry) -> frozenset[str]:
    """Return what a board of the map can measure, with the instrument beside it."""
    measured: Sequence[str] = ("instructions",) if entry.runner == "qemu" else ("latency",)
    if entry.instrument is None:
        return frozenset(measured)
    instrument: Any = plugins.load("instrument", INSTRUMENTS, entry.instrument)
    return frozenset((*measured, *_QUANTITIES[instrument.quantity]))
