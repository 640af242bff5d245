"""Leases: one holder a board, none after a kill, and quarantine for what fails again and again."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pydantic import ValidationError

import backends.boards.pool
from automcu_ray.core.errors import BoardError
from backends.boards.pool import BoardEntry, Pool, emulated


class Clock:
    """Time that passes when all `threads` sleep, and by no more than the next of them asked for."""

    def __init__(self, threads: int) -> None:
        self.now_s, self.awake, self.until = 0.0, threads, list[float]()
        self.turn = threading.Condition()

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        with self.turn:
            self.until.append(wakes := self.now_s + seconds)
            self.ends()
            self.turn.wait_for(lambda: self.now_s >= wakes)

    def ends(self) -> None:
        """A thread is done, or asleep; the last one moves the clock, and wakes those whose time has come."""
        with self.turn:
            self.awake -= 1
            if self.awake == 0 and self.until:
                self.now_s = min(self.until)
                self.awake = sum(wakes <= self.now_s for wakes in self.until)
                self.until = [wakes for wakes in self.until if wakes > self.now_s]
                self.turn.notify_all()


def test_two_boards_and_six_trials_are_exclusive_and_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of 0.97 s each, by a clock that nothing else on the machine slows: the rest is waiting for a lease."""
    pool, now, overlaps, busy = Pool(emulated(2), tmp_path), set[str](), [], []
    clock = Clock(threads=6)
    monkeypatch.setattr(backends.boards.pool, "time", clock)

    def trial() -> None:
        with pool.lease(30) as board:
            if board.id in now:
                overlaps.append(board.id)
            now.add(board.id)
            clock.sleep(0.97)
            now.discard(board.id)
            busy.append(board.id)
        clock.ends()

    trials = [threading.Thread(target=trial, daemon=True) for _ in range(6)]
    for one in trials:
        one.start()
    for one in trials:
        one.join(30)
    assert overlaps == [] and sorted(busy) == 3 * ["qemu-0"] + 3 * ["qemu-1"]
    share = 6 * 0.97 / (2 * clock.now_s)
    assert 0.8 < share <= 1, f"busy for {share:.1%} of the time"


def test_kill_9_leaves_no_board_locked(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from backends.boards.pool import Pool, emulated\n"
        "with Pool(emulated(1), Path(sys.argv[1])).lease(5): print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    pool = Pool(emulated(1), tmp_path)
    with pytest.raises(BoardError, match="in use"), pool.lease(0.2):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with pool.lease(5) as board:
        assert board.id == "qemu-0"


def test_the_third_fault_in_a_row_is_quarantine_and_work_forgets_them(tmp_path: Path) -> None:
    pool = Pool(emulated(2), tmp_path)
    for _ in range(2):
        pool.failed("qemu-0", "silent")
    pool.works("qemu-0")
    assert len(pool.usable()) == 2
    for _ in range(3):
        pool.failed("qemu-0", "silent")
    with pool.lease(1) as board:
        assert board.id == "qemu-1"
    for _ in range(3):
        pool.failed("qemu-1", "refuses to flash")
    with pytest.raises(BoardError, match="refuses to flash"), pool.lease(1):
        pass


def test_a_map_is_checked() -> None:
    with pytest.raises(ValidationError, match="letters"):
        BoardEntry(id="../board")
    assert Pool((BoardEntry(id="a", connected=False),), Path("/nowhere")).boards == ()
