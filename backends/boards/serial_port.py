"""A board on a serial port: any firmware that speaks the line protocol, written by a flasher, or already there."""

import errno
import importlib.metadata
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import serial

from automcu_ray.core.errors import BoardError, ConfigError
from automcu_ray.problem.target import McuTarget
from backends.boards.base import Board, Port
from backends.boards.flashers import flash, flasher_of
from backends.boards.pool import BoardEntry
from backends.programs import Runner, run_program

RESET_S = 0.1
ALREADY_THERE = "none"  # runner of a board that boots what somebody else has written


class SerialBoard(Board):
    """A device, or a URL of pyserial's (socket://, rfc2217://), from an entry of the map.

    The port is opened before the firmware is written, so that its first line is not lost; where the flasher itself
    writes by that port, it is opened afterwards, and the chip reset by RTS. What takes how many
    instructions nobody can say. Not tried on real hardware: the tests' firmware runs in QEMU, behind a socket.
    """

    name = "serial"

    def __init__(self, *, entry: BoardEntry | None = None, timeout_s: float = 120, run: Runner = run_program) -> None:
        super().__init__(timeout_s=timeout_s)
        self.entry, self.run_flasher = entry, run

    @contextmanager
    def connect(self, elf: Path, target: McuTarget) -> Iterator[Port]:
        entry = self.entry
        if entry is None or not entry.serial:
            raise ConfigError("a board on a serial port needs an entry with `serial` in the map of boards.")
        writes = entry.runner != ALREADY_THERE
        by_port = writes and flasher_of(entry).by_port
        if by_port:
            self._flash(entry, elf)
        try:
            port = serial.serial_for_url(entry.serial, baudrate=entry.baud, timeout=self.timeout_s)
        except (serial.SerialException, ValueError, OSError) as error:
            raise BoardError(f"board {entry.id!r}: {entry.serial} cannot be opened: {error}") from error
        with port:
            if by_port:
                _reset(port)
            elif writes:
                self._flash(entry, elf)
            yield port

    def _flash(self, entry: BoardEntry, elf: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="automcu-flash-") as folder:
            flash(entry, elf, Path(folder), self.run_flasher)

    def instructions(self, ticks: int, target: McuTarget) -> int | None:
        return None

    def clock_hz(self, target: McuTarget) -> int | None:
        return target.uart.clock_hz  # SysTick counts the core's clock, which is the port's as the chip leaves reset

    def version(self) -> str:
        return f"pyserial {importlib.metadata.version('pyserial')}"

    def label(self, target: McuTarget) -> str:
        return f"{self.name} {self.entry.product or self.entry.id}" if self.entry else self.name


def _reset(port: serial.Serial) -> None:
    """Reset an ESP32 as its own tools do: RTS holds the chip in reset, DTR would let it boot into its loader."""
    try:
        port.dtr = False
        port.rts = True
        time.sleep(RESET_S)
        port.reset_input_buffer()
        port.rts = False
    except (serial.SerialException, OSError) as error:
        if error.errno in (errno.ENOTTY, errno.EINVAL):
            return  # a pseudo terminal, or a socket: there is nothing to reset by
        raise BoardError(f"the serial port broke while the chip was reset: {error}") from error
