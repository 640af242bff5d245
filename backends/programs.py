"""The only place that starts programs: every command is logged, bounded in time and disk and, if need be, killed."""

import contextlib
import functools
import os
import resource
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Protocol

from automcu_ray.core.confinement import confined, environment, obstacle
from automcu_ray.core.errors import ToolchainError, ToolMissingError
from automcu_ray.core.folder_lock import hold

LOG = "commands.log"
LOG_CHARS = 20_000  # of one command's output: a log is for people
OUTPUT_BYTES = 16 * 2**20
DISK_BYTES = 512 * 2**20  # of one file, and of all files in a program's folder; a large network takes a tenth of it
YOUNG_S = 60
WATCH_S = 0.1  # how often a running program's output and folder are looked at
_APT = {
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "arm-none-eabi-size": "binutils-arm-none-eabi",
    "qemu-system-arm": "qemu-system-arm",
    "bwrap": "bubblewrap",
    "make": "make",
    "openocd": "openocd",
    "uhubctl": "uhubctl",
}
_ELSEWHERE = {
    "esptool": "pip install esptool",
    "idf.py": "install ESP-IDF (https://docs.espressif.com/projects/esp-idf), then `. $IDF_PATH/export.sh`",
    "picotool": "https://github.com/raspberrypi/picotool",
    "probe-rs": "https://probe.rs",
    "pyocd": "pip install pyocd",
    "STM32_Programmer_CLI": "STM32CubeProgrammer, https://www.st.com/en/development-tools/stm32cubeprog.html",
}

Completed = subprocess.CompletedProcess[str]


class Runner(Protocol):
    """Runs a program to its end; tests put a fake in its place."""

    def __call__(self, argv: Sequence[str], *, timeout_s: float, cwd: Path) -> Completed: ...


def run_confined(argv: Sequence[str], *, timeout_s: float, cwd: Path) -> Completed:
    """Do as `run_program` for a program that reads generated text: it sees `cwd` and its toolchain alone.

    Where the machine allows no namespaces it runs as any other: what it reads was written by our generators, from
    names of ours. Code that a stranger wrote does not come this far there, for it needs the jail.
    """
    return run_program(argv, timeout_s=timeout_s, cwd=cwd, alone=not obstacle())


def run_program(
    argv: Sequence[str],
    *,
    timeout_s: float,
    cwd: Path,
    disk_bytes: int = DISK_BYTES,
    alone: bool = False,
    readable: Iterable[Path] = (),
) -> Completed:
    """Return the finished process, whatever its exit status; command and output go to `<cwd>/commands.log`.

    Temporary files of the program lie in `cwd`, too, so that they count and go with it. `alone` as in `run_confined`;
    then it reads the folders of `readable` beside its own.

    Raises:
        ToolMissingError: the program is not on PATH.
        ToolchainError: it was killed, since it ran longer than `timeout_s`, said more than `OUTPUT_BYTES`, or left
            more than `disk_bytes` in `cwd`.
    """
    require(argv[0])
    folder = cwd.resolve()
    settings = environment(folder) if alone else {**os.environ, "TMPDIR": str(folder)}
    command = confined(argv, folder=folder, readable=readable) if alone else argv
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            _bounded(command, disk_bytes),
            cwd=cwd,
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            trouble = _watch(process, (stdout, stderr), timeout_s, cwd, disk_bytes)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it has left: gcc's own children outlive gcc
            process.wait()
        said = []
        for file in (stdout, stderr):
            file.seek(0)
            said.append(file.read(OUTPUT_BYTES).decode(errors="replace"))
    _log(cwd, argv, f"{trouble or f'exit {process.returncode}'}\n{_clip(said[0])}{_clip(said[1])}")
    if trouble:
        raise ToolchainError(f"{argv[0]} {trouble}. Log: {cwd / LOG}.")
    return subprocess.CompletedProcess(argv, process.returncode, *said)


def _watch(
    process: subprocess.Popen[bytes], outputs: Iterable[IO[bytes]], timeout_s: float, cwd: Path, disk_bytes: int
) -> str:
    """Wait until a program ends, or has to be; return why, "" where it ended by itself and within its bounds."""
    deadline, ended = time.monotonic() + timeout_s, False
    while True:
        if any(os.fstat(file.fileno()).st_size > OUTPUT_BYTES for file in outputs):
            return f"should say at most {OUTPUT_BYTES} bytes; killed"
        if _folder_bytes(cwd) > disk_bytes:
            return f"should leave at most {disk_bytes} bytes in its folder; killed"
        if ended:
            return ""
        if time.monotonic() >= deadline:
            return f"should end within {timeout_s:g} s; killed"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(WATCH_S, max(0.0, deadline - time.monotonic())))
            ended = True  # looked at once more: it may have filled the disk in its last moments


def _folder_bytes(folder: Path) -> int:
    """Return the bytes that a folder's files occupy; holes in a file do not count."""
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # it may go while we look
                size += os.lstat(os.path.join(parent, name)).st_blocks * 512
    return size


def _clip(text: str) -> str:
    """Return a text short enough for a log, its middle left out."""
    if len(text) <= LOG_CHARS:
        return text
    half = LOG_CHARS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}\n"


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
            _bounded(argv, OUTPUT_BYTES),
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


def _bounded(argv: Sequence[str], file_bytes: int) -> list[str]:
    """Return the command so that Linux bounds its files, and kills it when this process dies, even by kill -9.

    Only the soft limit is set, and never above a hard one that somebody has set for us. Elsewhere (no util-linux)
    files are bounded by looking at them, and an emulator may outlive us.
    """
    if missing(["setpriv", "prlimit"]):
        return list(argv)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    soft = file_bytes if hard == resource.RLIM_INFINITY else min(file_bytes, hard)
    return ["prlimit", f"--fsize={soft}:", "setpriv", "--pdeathsig", "KILL", *argv]


def missing(programs: Iterable[str]) -> tuple[str, ...]:
    """Return the programs that are not on PATH."""
    return tuple(program for program in programs if shutil.which(program) is None)


def apt_packages(programs: Iterable[str]) -> str:
    """Return the Debian packages that bring some programs, for an installation hint."""
    return " ".join(_APT.get(program, program) for program in programs)


def require(program: str) -> None:
    """Raise ToolMissingError, with the way to install it, where a program is not on PATH."""
    if missing([program]):
        raise ToolMissingError(f"this rung needs {program!r}, which is not on PATH. Install it{how_to_get(program)}.")


def how_to_get(program: str) -> str:
    """Return where a program comes from, as `: apt install it`; "" where that is not known."""
    found = f"apt install {_APT[program]}" if program in _APT else _ELSEWHERE.get(program, "")
    return found and f": {found}"


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its finished children, user and system."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def scratch_folder() -> Path:
    """Return a folder of this process, for objects that many candidates share.

    It goes when the process ends, or, since Ray's workers are killed, when a later process of ours wants one.
    """
    return Path(_scratch(os.getpid()).name)  # by pid: a forked child must not share its parent's


@functools.cache
def _scratch(pid: int) -> tempfile.TemporaryDirectory[str]:
    for folder in Path(tempfile.gettempdir()).glob("automcu-[0-9]*-*"):
        with contextlib.suppress(OSError):  # remove those of this user that no living process holds
            about = folder.lstat()
            mine = about.st_uid == os.getuid() and stat.S_ISDIR(about.st_mode)
            if mine and time.time() - about.st_mtime > YOUNG_S:  # a young one may not be held yet
                held = hold(folder)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(held)
    made = tempfile.TemporaryDirectory(prefix=f"automcu-{pid}-")
    with contextlib.suppress(OSError):  # on a disk without locks nothing is removed either
        hold(Path(made.name))
    return made


def _log(folder: Path, argv: Sequence[str], outcome: str) -> None:
    with (folder / LOG).open("a") as log:
        log.write(f"$ {shlex.join(argv)}\n{outcome}")
