"""Notices at once that one of Ray's own processes has died: Ray itself waits for a minute, then aborts this process."""

import atexit
import contextlib
import os
import select
import signal
import threading
from pathlib import Path

from automcu_ray.runtime import interruption
from automcu_ray.runtime.ray_agents import end_agents

_NEEDED = ("gcs_server", "raylet")


class RayWatch:
    """Watches the processes that Ray has started here; raises KeyboardInterrupt in the main thread when one ends.

    `died` is then its name. Where Linux has no pidfd, nothing is noticed.
    """

    def __init__(self) -> None:
        self.died = ""
        self._over = False
        self._noticed = threading.Event()
        self._files: dict[int, tuple[int, str]] = {}  # a pidfd: its process and name
        for pid, name in _servers() if hasattr(os, "pidfd_open") else ():
            self._files[os.pidfd_open(pid)] = pid, name
        atexit.register(self.close)  # before Ray's own end, which was registered earlier
        threading.Thread(target=self._wait, daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Return when a process has died, or after so many seconds: errors of Ray's come before its process is gone."""
        with contextlib.suppress(KeyboardInterrupt):  # our own, to say so
            self._noticed.wait(seconds)

    def close(self) -> None:
        """Let Ray end in peace; where one process has died, kill the others, which would wait for it."""
        self._over = True
        if not self.died:
            return
        end_ray([pid for pid, _ in self._files.values()])

    def _wait(self) -> None:
        poll = select.poll()
        for file in self._files:
            poll.register(file, select.POLLIN)
        ended = poll.poll() if self._files else []
        if ended and not self._over:
            _, self.died = self._files[ended[0][0]]
            interruption.interrupt_main()
            self._noticed.set()


def end_ray(servers: list[int] | None = None) -> None:
    """Kill what is left of a Ray that this process has started: servers, their children, agents without a parent."""
    for pid in [pid for pid, _ in _servers()] if servers is None else servers:
        for left in (*_children(pid), pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
    end_agents(os.getpid())


def _servers() -> list[tuple[int, str]]:
    found = []
    for pid in _children(os.getpid()):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if (name := Path(f"/proc/{pid}/comm").read_text().strip()) in _NEEDED:
                found.append((pid, name))
    return found


def _children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found
