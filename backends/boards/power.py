"""Power cycling by uhubctl: a board that does not answer is unplugged and plugged in, where its USB hub can do that.

Not tried on a hub: the options are those of uhubctl 2.5's own help, what it says and does was read in its sources
(https://github.com/mvp/uhubctl). A board that an instrument feeds stays on: the USB port is all that is switched.
"""

import tempfile
import time
from pathlib import Path

from automcu_ray.core.errors import ToolchainError, ToolMissingError
from backends.boards.pool import BoardEntry
from backends.programs import Runner, run_program

UHUBCTL = "uhubctl"
OFF_S = 2
TIMEOUT_S = 60.0
BACK_S, POLL_S = 15.0, 0.1  # how long a device may take to come back


def command(entry: BoardEntry) -> list[str]:
    """Return the command line that cycles the power of a board's USB port."""
    return [
        UHUBCTL,
        *("--location", str(entry.hub)),
        *("--ports", str(entry.port)),
        *("--action", "cycle"),
        *("--delay", str(OFF_S)),
    ]


def cycle(entry: BoardEntry, run: Runner = run_program, back_s: float = BACK_S) -> str:
    """Cycle the power of a board that names a hub, and wait for its serial device; return why not, "" where it did."""
    if entry.hub is None:
        return "its map names no hub and port to cycle its power by"
    try:
        with tempfile.TemporaryDirectory(prefix="automcu-power-") as folder:
            done = run(command(entry), timeout_s=TIMEOUT_S, cwd=Path(folder))
    except (ToolchainError, ToolMissingError) as error:
        return str(error)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1][:200]
        return f"{UHUBCTL} failed ({done.returncode}): {said}"
    deadline_s = time.monotonic() + back_s
    while entry.serial and entry.serial.startswith("/") and not Path(entry.serial).exists():
        if time.monotonic() > deadline_s:
            return f"{entry.serial} did not come back within {back_s:g} s after its power was cycled"
        time.sleep(POLL_S)
    return ""
