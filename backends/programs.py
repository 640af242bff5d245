"""The only place that starts programs: every command is logged, bounded in time and, if need be, killed."""

import contextlib
import functools
import os
import resource
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from automcu_ray.errors import ToolchainError, ToolMissingError

LOG = "commands.log"
_APT = {
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "arm-none-eabi-size": "binutils-arm-none-eabi",
    "qemu-system-arm": "qemu-system-arm",
    "bwrap": "bubblewrap",
}

Completed = subprocess.CompletedProcess[str]


class Runner(Protocol):
    """Runs a program to its end; tests put a fake in its place."""

    def __call__(self, argv: Sequence[str], *, timeout_s: float, cwd: Path) -> Completed: ...


def run_program(argv: Sequence[str], *, timeout_s: float, cwd: Path) -> Completed:
    """Return the finished process, whatever its exit status; command and output go to `<cwd>/commands.log`.

    Raises:
        ToolMissingError: the program is not on PATH.
        ToolchainError: it ran longer than `timeout_s` (and was killed).
    """
    require(argv[0])
    pipe = subprocess.PIPE
    with subprocess.Popen(
        _bound_to_us(argv), cwd=cwd, stdout=pipe, stderr=pipe, text=True, errors="replace", start_new_session=True
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            _log(cwd, argv, f"killed after {timeout_s:g} s\n")
            raise ToolchainError(f"{argv[0]} should end within {timeout_s:g} s; killed. Log: {cwd / LOG}.") from error
        finally:
            _kill_group(process)
    _log(cwd, argv, f"exit {process.returncode}\n{stdout}{stderr}")
    return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


@contextlib.contextmanager
def running(argv: Sequence[str], *, cwd: Path, pass_fds: Sequence[int] = ()) -> Iterator[subprocess.Popen[str]]:
    """Start a program that serves until it is no longer needed; it is killed on every way out.

    Its stderr goes to `<cwd>/<program>.stderr`, the command to `<cwd>/commands.log`.

    Raises:
        ToolMissingError: the program is not on PATH.
    """
    require(argv[0])
    _log(cwd, argv, "started\n")
    with (cwd / f"{Path(argv[0]).name}.stderr").open("w") as errors:
        process = subprocess.Popen(
            _bound_to_us(argv),
            cwd=cwd,
            pass_fds=pass_fds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _bound_to_us(argv: Sequence[str]) -> list[str]:
    """Return the command so that Linux kills it when this process dies, even by kill -9: an emulator never ends."""
    bind = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    return [*bind, *argv]


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Kill what a finished or hanging program has left: gcc's own children outlive gcc."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def missing(programs: Iterable[str]) -> tuple[str, ...]:
    """Return the programs that are not on PATH."""
    return tuple(program for program in programs if shutil.which(program) is None)


def apt_packages(programs: Iterable[str]) -> str:
    """Return the Debian packages that bring some programs, for an installation hint."""
    return " ".join(_APT.get(program, program) for program in programs)


def require(program: str) -> None:
    """Raise ToolMissingError, with the way to install it, where a program is not on PATH."""
    if missing([program]):
        package = _APT.get(program)
        how = f"Install it: apt install {package}." if package else "Install it."
        raise ToolMissingError(f"this rung needs {program!r}, which is not on PATH. {how}")


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its finished children, user and system."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def scratch_folder() -> Path:
    """Return a folder of this process, for objects that many candidates share; it goes when the process ends."""
    return Path(_scratch(os.getpid()).name)  # by pid: a forked child must not share its parent's


@functools.cache
def _scratch(pid: int) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=f"automcu-{pid}-")


def _log(folder: Path, argv: Sequence[str], outcome: str) -> None:
    with (folder / LOG).open("a") as log:
        log.write(f"$ {shlex.join(argv)}\n{outcome}")
