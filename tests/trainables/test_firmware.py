"""Boards that break: another one is tried, the worst are set aside, and the attempt is never to blame."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import serial

from automcu_ray.core.errors import BoardError
from automcu_ray.problem.arena import ArenaTask
from automcu_ray.problem.target import McuTarget
from backends.boards.base import Board, Port
from backends.boards.pool import BoardEntry, Pool, emulated
from backends.boards.qemu import QemuBoard
from tests.trainables.arena.conftest import *  # noqa: F403  # the fixtures of a small task
from trainables.arena.workload import Workload
from trainables.firmware import examine

pytestmark = pytest.mark.thorough

Misdeed = Callable[[Port], Port]


class Hangs:
    """Says the banner, and nothing more."""

    def __init__(self, port: Port) -> None:
        self.port, self.greeted = port, False

    def write(self, data: bytes, /) -> int | None:
        return len(data)

    def read_until(self, expected: bytes, size: int, /) -> bytes:
        if self.greeted:
            return b""
        self.greeted = True
        return self.port.read_until(expected, size)


class ResetsInMidTransfer(Hangs):
    """Begins an answer, and then says its banner again."""

    def read_until(self, expected: bytes, size: int, /) -> bytes:
        if self.greeted:
            return b"OUT 0000ARENA 1 00000040 0000000a 0000000000001000\n"
        return super().read_until(expected, size)


class PrintsNoise(Hangs):
    """Answers, in noise."""

    def read_until(self, expected: bytes, size: int, /) -> bytes:
        return bytes(range(128, 160)) + b"\n"


class DropsBytes(Hangs):
    """Loses a byte of every answer."""

    def write(self, data: bytes, /) -> int | None:
        return self.port.write(data)

    def read_until(self, expected: bytes, size: int, /) -> bytes:
        line = self.port.read_until(expected, size)
        return line if line.startswith(b"ARENA") else line[:20] + line[21:]


class Unplugged(Hangs):
    """Breaks its serial port."""

    def write(self, data: bytes, /) -> int | None:
        raise serial.SerialException("device reports readiness to read but returned no data")


class BrokenBoard(QemuBoard):
    """QEMU behind a cable that misbehaves; None: it refuses to flash."""

    def __init__(self, misdeed: Misdeed | None, *, timeout_s: float = 5) -> None:
        super().__init__(timeout_s=timeout_s)
        self.misdeed = misdeed

    @contextmanager
    def connect(self, elf: Path, target: McuTarget) -> Iterator[Port]:
        if self.misdeed is None:
            raise BoardError("the flasher should write the firmware: target voltage too low")
        with super().connect(elf, target) as port:
            yield self.misdeed(port)


@pytest.fixture
def artifact(seed: dict[str, str], tmp_path: Path) -> Path:
    folder = tmp_path / "artifact"
    folder.mkdir()
    for name, text in seed.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.usefixtures("qemu")
@pytest.mark.parametrize("misdeed", [Hangs, ResetsInMidTransfer, PrintsNoise, DropsBytes, Unplugged, None])
def test_a_broken_board_goes_to_quarantine_and_the_attempt_is_judged_on_another(
    misdeed: Misdeed | None, arena_task: ArenaTask, workload: Workload, artifact: Path, tmp_path: Path
) -> None:
    def make(entry: BoardEntry, timeout_s: float) -> Board:
        return BrokenBoard(misdeed, timeout_s=2) if entry.id == "qemu-0" else QemuBoard(timeout_s=10)

    pool = Pool(emulated(2), tmp_path / "locks")
    for _ in range(2):
        pool.failed("qemu-0", "earlier faults")
    found = examine(arena_task, workload, pool, 1, artifact, tmp_path / "work", make=make)
    assert found.valid and not found.infrastructure
    assert [board.id for board in pool.usable()] == ["qemu-1"]


@pytest.mark.usefixtures("qemu")
def test_without_a_board_that_works_the_attempt_is_not_judged(
    arena_task: ArenaTask, workload: Workload, artifact: Path, tmp_path: Path
) -> None:
    pool = Pool(emulated(1), tmp_path / "locks")
    found = examine(arena_task, workload, pool, 1, artifact, tmp_path / "work", make=lambda *_: BrokenBoard(None))
    assert not found.valid and "no board is left" in found.infrastructure and found.checks == ()


@pytest.mark.usefixtures("qemu")
def test_firmware_that_hangs_is_to_blame_where_the_board_passes_the_probe(
    arena_task: ArenaTask, workload: Workload, artifact: Path, tmp_path: Path
) -> None:
    (artifact / "net.c").write_text("void net(const signed char *in, signed char *out) { for (;;) {} }")
    pool = Pool(emulated(1), tmp_path / "locks")
    make = lambda *_: QemuBoard(timeout_s=2)  # noqa: E731
    found = examine(arena_task, workload, pool, 1, artifact, tmp_path / "work", make=make)
    assert [(check.name, check.passed) for check in found.checks][-1] == ("run", False)
    assert not found.infrastructure and pool.faults("qemu-0") == []


@pytest.mark.usefixtures("qemu")
def test_a_board_is_power_cycled_before_it_goes_to_quarantine_and_may_go_on(
    arena_task: ArenaTask, workload: Workload, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycled: list[int] = []

    def make(entry: BoardEntry, timeout_s: float) -> Board:
        return QemuBoard(timeout_s=10) if cycled else BrokenBoard(None)

    monkeypatch.setattr("trainables.firmware.trouble_of", lambda *_: "" if cycled else "it refuses to flash")
    monkeypatch.setattr(
        "trainables.firmware.power.cycle", lambda entry: cycled.append(len(pool.faults(entry.id))) or ""
    )
    pool = Pool(emulated(1), tmp_path / "locks")
    found = examine(arena_task, workload, pool, 1, artifact, tmp_path / "work", make=make)
    assert found.valid and cycled == [2]  # two faults noted, the third one spared
    assert pool.faults("qemu-0") == []
