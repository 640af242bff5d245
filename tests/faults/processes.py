"""A search as a tree of processes: who belongs to it, who is what, and who is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "search.py"
TITLES = {  # of the processes that can be hit, by what their command lines begin with; Ray sets those of its actors
    "worker": "ray::ResourceTrainable",
    "toolchain": "ray::Toolchain",
    "engine": "ray::_Server",
    "raylet": "raylet",
    "gcs": "gcs_server",
}


class Process(NamedTuple):
    """A process; its start, in clock ticks since boot, tells it from a later one of the same number."""

    pid: int
    parent: int
    started: int
    title: str

    @property
    def alive(self) -> bool:
        return any((one.pid, one.started) == (self.pid, self.started) for one in everyone())


def everyone() -> list[Process]:
    """All processes that are no zombies."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "stat").read_text().rpartition(")")[2].split()
            title = (path / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
        except OSError:  # it ended meanwhile
            continue
        if words[0] != "Z":
            found.append(Process(int(path.name), int(words[1]), int(words[19]), title.rpartition("/")[2]))
    return found


class Search:
    """A search in a session of its own, and all processes of it that were ever seen."""

    def __init__(self, runs: Path, *flags: str) -> None:
        self.output = runs / "output.txt"
        self.seen: set[Process] = set()
        environment = {**os.environ, "AUTOMCU_CACHE": str(runs / "cache")}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), "--runs", str(runs), *flags],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    def find(self, kind: str) -> list[Process]:
        """Look around; return the processes of a kind."""
        known, all_ = {self.process.pid}, everyone()
        for _ in range(6):  # generations
            known |= {one.pid for one in all_ if one.parent in known}
        mine = [one for one in all_ if one.pid in known]
        self.seen.update(mine)
        if kind == "driver":
            return [one for one in mine if one.pid == self.process.pid]
        return [one for one in mine if one.title.startswith(TITLES[kind])]

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit status; None where it hangs, and is killed."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.find("driver")
            if (status := self.process.poll()) is not None:
                return status
            time.sleep(0.5)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return None

    def left(self, timeout_s: float) -> list[Process]:
        """Return the processes that outlive the search by so long; they are killed."""
        deadline = time.monotonic() + timeout_s
        while (left := [one for one in self.seen if one.alive]) and time.monotonic() < deadline:
            time.sleep(1)
        for one in left:
            os.kill(one.pid, signal.SIGKILL)
        return left
