"""QEMU as a board: the same firmware, the same serial protocol, instructions counted instead of time."""

import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import serial

from automcu_ray.core.errors import BoardError, ConfigError
from automcu_ray.problem.target import McuTarget
from backends.boards.base import Board, Port
from backends.boards.machines import find_machine
from backends.programs import run_program, running, scratch_folder

QEMU = "qemu-system-arm"
NANOSECONDS = 1_000_000_000


class QemuBoard(Board):
    """An emulated board. `-icount shift=0` lets one instruction take one virtual nanosecond.

    So a SysTick tick is `1e9 / systick_hz` instructions (5.95 on a netduinoplus2, 62.5 on a microbit), a count is the
    same in every run, and its resolution is one tick. Instructions, not cycles: QEMU models no timing.

    With `icount_shift` an instruction takes `2 ** icount_shift` virtual nanoseconds, for firmware that tells the time.
    """

    name = "qemu"
    programs: ClassVar[tuple[str, ...]] = (QEMU,)
    measures: ClassVar[frozenset[str]] = frozenset({"stack", "instructions"})

    def __init__(self, *, timeout_s: float = 120, icount_shift: int = 0) -> None:
        super().__init__(timeout_s=timeout_s)
        self.icount_shift = icount_shift

    @contextmanager
    def connect(self, elf: Path, target: McuTarget) -> Iterator[Port]:
        machine = _machine(target)
        with tempfile.TemporaryDirectory(prefix="automcu-qemu-") as folder, socket.socket() as listener:
            # QEMU inherits a socket that already listens: no port to guess, no moment to wait for.
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            argv = command(machine, elf.resolve(), listener.fileno(), self.icount_shift)  # QEMU runs in another folder
            stderr = Path(folder, f"{QEMU}.stderr")
            with running(argv, cwd=Path(folder), pass_fds=[listener.fileno()]) as qemu, _last_words(qemu, stderr):
                address, port = listener.getsockname()
                listener.close()  # QEMU holds the only copy: its end is seen as a closed port
                try:
                    connection = serial.serial_for_url(f"socket://{address}:{port}", timeout=self.timeout_s)
                except serial.SerialException as error:
                    raise BoardError(f"QEMU should serve {machine} on port {port}: {error}") from error
                with connection:
                    yield connection

    def instructions(self, ticks: int, target: McuTarget) -> int:
        return round(ticks * NANOSECONDS / find_machine(_machine(target)).systick_hz / (1 << self.icount_shift))

    def version(self) -> str:
        said = run_program([QEMU, "--version"], timeout_s=30, cwd=scratch_folder()).stdout
        return (said.splitlines() or [""])[0]

    def label(self, target: McuTarget) -> str:
        return f"{self.name} {_machine(target)}"


def command(machine: str, elf: Path, listener: int, icount_shift: int = 0) -> list[str]:
    """Return QEMU's arguments; `listener` is the file descriptor of a listening socket."""
    return [
        QEMU,
        *("-machine", machine),
        *("-kernel", str(elf)),
        *("-display", "none"),
        *("-monitor", "none"),
        *("-icount", f"shift={icount_shift}"),
        *("-chardev", f"socket,id=uart,fd={listener},server=on,wait=on"),
        *("-serial", "chardev:uart"),
    ]


@contextmanager
def _last_words(qemu: subprocess.Popen[str], stderr: Path) -> Iterator[None]:
    """Add what QEMU said to a board's error, where QEMU has ended."""
    try:
        yield
    except BoardError as error:
        with suppress(subprocess.TimeoutExpired):
            qemu.wait(timeout=0.5)  # its end closes the port a moment before it is known
        if qemu.returncode is None:
            raise
        lines = stderr.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        reason = next((line for line in reversed(lines) if line.startswith("qemu")), lines[-1])  # not a register dump
        raise BoardError(f"QEMU ended with status {qemu.returncode}: {reason} ({error})") from error


def _machine(target: McuTarget) -> str:
    if target.emulator is None:
        raise ConfigError(
            f"target {target.name!r} names no emulator: it can be built, not run. "
            "Choose a target with one, such as stm32f405, or set board.mode=none."
        )
    return target.emulator.machine
