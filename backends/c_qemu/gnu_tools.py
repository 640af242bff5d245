"""GCC and its companions: names, time limits, versions, and what becomes of a call."""

import re
from pathlib import Path

from automcu_ray.core.errors import ToolchainError
from backends.programs import OUTPUT_BYTES, Completed, Runner, scratch_folder

GCC, SIZE = "arm-none-eabi-gcc", "arm-none-eabi-size"
COMPILE_TIMEOUT_S, LINK_TIMEOUT_S, SIZE_TIMEOUT_S = 200.0, 60.0, 30.0  # before the gate, 300 s, kills the actor


def gnu_versions(run: Runner) -> str:
    """Return the versions of compiler and linker.

    Raises:
        ToolchainError: one says none.
    """
    said = []
    for asked, pattern in (("-dumpfullversion", r"[\w.+-]{1,40}"), ("-Wl,--version", r"[\w.+() -]{1,80}")):
        done = run([GCC, asked], timeout_s=SIZE_TIMEOUT_S, cwd=scratch_folder())
        line = (succeed(done).stdout.splitlines() or [""])[0].strip()
        if not re.fullmatch(pattern, line):
            raise ToolchainError(f"{GCC} {asked} should say a version, found {line[:80]!r}.")
        said.append(line)
    return f"{GCC} {said[0]}, {said[1]}"


def read_text(path: Path) -> str:
    """Return the text of a file that a program should have written, as much as is ever needed of it."""
    if not path.is_file():
        raise ToolchainError(f"{GCC} should have written {path.name}, found nothing. Log: {path.parent}.")
    with path.open(errors="replace") as file:
        return file.read(OUTPUT_BYTES)


def succeed(done: Completed) -> Completed:
    """Return a call that has ended well.

    Raises:
        ToolchainError: it has not; with the first error that it printed.
    """
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise ToolchainError(f"{done.args[0]} failed ({done.returncode}): {errors[0] if errors else 'silent'}")
    return done
