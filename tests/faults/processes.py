"""A search as a tree of processes: who belongs to it, who is what, and who is left."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "search.py"
STAND_IN = Path(__file__).with_name("stand_in")  # for vLLM
TITLES = {  # of the processes that can be hit, by what their command lines begin with; Ray sets those of its actors
    "worker": "ray::ResourceTrainable",
    "toolchain": "ray::Toolchain",
    "engine": "ray::Server",
    "raylet": "raylet",
    "gcs": "gcs_server",
    "agent": "ray::RuntimeEnvAgent",
}


class Process(NamedTuple):
    """A process; its start, in clock ticks since boot, tells it from a later one of the same number."""

    pid: int
    parent: int
    started: int
    title: str


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

    def __init__(
        self, runs: Path, *flags: str, before: tuple[str, ...] = (), output: str = "output.txt", **environment: str
    ) -> None:
        self.output = runs / output
        self.seen: set[Process] = set()
        path = os.pathsep.join([str(STAND_IN), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "AUTOMCU_CACHE": str(runs / "cache"), "PYTHONPATH": path, **environment}
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [*before, sys.executable, str(SCRIPT), "--runs", str(runs), *flags],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    def look(self) -> list[Process]:
        """Return the processes of this search, the driver among them."""
        known, all_ = {self.process.pid}, everyone()
        for _ in range(6):  # generations
            known |= {one.pid for one in all_ if one.parent in known}
        mine = [one for one in all_ if one.pid in known]
        self.seen.update(mine)
        return mine

    def find(self, kind: str) -> list[Process]:
        """Look around; return the processes of a kind."""
        if kind == "driver":
            return [one for one in self.look() if one.pid == self.process.pid]
        return [one for one in self.look() if one.title.startswith(TITLES[kind])]

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit status; None where it hangs, and is killed."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.look()
            if (status := self.process.poll()) is not None:
                return status
            time.sleep(0.3)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return None

    def left(self, timeout_s: float) -> list[Process]:
        """Return the processes that outlive the search by so long; they are killed."""
        deadline = time.monotonic() + timeout_s
        while (left := self._alive()) and time.monotonic() < deadline:
            time.sleep(0.3)
        for one in left:
            with contextlib.suppress(ProcessLookupError):  # just now
                os.kill(one.pid, signal.SIGKILL)
        return left

    def _alive(self) -> list[Process]:
        here = {(one.pid, one.started): one for one in everyone()}
        return [here[key] for key in {(one.pid, one.started) for one in self.seen} & here.keys()]
