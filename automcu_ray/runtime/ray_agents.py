"""Ends the agents of a Ray that has died: they would stay for a minute, in which they try to tell the dead server so.

Run as a script it waits beside a driver, says a line for one that ends without a word, and ends the agents it left.
"""

import contextlib
import os
import re
import signal
import sys
import time
from pathlib import Path

LOOKS, PAUSE_S = 5, 1.0  # a raylet that is about to die has perhaps just begun to start one
SAID = "said"  # by the driver: it has ended in peace


def end_agents(driver: int) -> None:
    """Kill the agents of the Ray that the process `driver` has started: its number ends the name of Ray's session."""
    session = re.compile(rf"/session_[0-9_-]+_{driver}/")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if b"agent" in (process / "cmdline").read_bytes().lower() and any(
                session.search(os.readlink(file)) for file in (process / "fd").iterdir()
            ):
                os.kill(int(process.name), signal.SIGKILL)


def wait_beside(driver: int, line: str) -> None:
    """Wait until the driver has said that it ends, or has died, which closes our input; then say the line for it."""
    if SAID in sys.stdin.read():
        return
    print(line, file=sys.stderr, flush=True)
    for _ in range(LOOKS):
        end_agents(driver)
        time.sleep(PAUSE_S)


if __name__ == "__main__" and not os.fork():  # no child of the driver's: those Ray kills, when it ends the driver
    wait_beside(int(sys.argv[1]), sys.argv[2])
