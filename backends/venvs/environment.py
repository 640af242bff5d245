"""Virtual environments of backends whose Python packages do not go with ours: made once, on demand, for all runs.

    python -m backends.venvs vela executorch

What an environment holds is pinned in `foreign/<name>.txt`. It lies in $AUTOMCU_CACHE or
~/.cache/automcu_ray, under a name that changes with that list and Python's version. PIP_ARGS goes to pip, as in make.
"""

import fcntl
import functools
import hashlib
import os
import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from automcu_ray.core.errors import AutoMcuError, ToolMissingError, unknown_name
from automcu_ray.sizing.verdict_cache import verdict_folder
from backends.programs import DISK_BYTES, LOG, Runner, run_program

FOREIGN = Path(__file__).parent / "foreign"
COMPLETE = "complete"  # written last: an environment without it was broken off
TIMEOUT_S = 1800.0
_FILE_BYTES = 8 * DISK_BYTES  # torch's largest library alone comes near to a build's bound

install_run: Runner = functools.partial(run_program, disk_bytes=_FILE_BYTES)


@dataclass(frozen=True)
class Environment:
    """A virtual environment by the name of its list of packages."""

    name: str

    @property
    def requirements(self) -> Path:
        """The pinned packages, as pip reads them."""
        return FOREIGN / f"{self.name}.txt"

    @property
    def folder(self) -> Path:
        """Where it lies; another list or another Python is another folder."""
        about = f"{self.requirements.read_text()}{sys.version}"
        return verdict_folder().parent / "venvs" / f"{self.name}-{hashlib.sha256(about.encode()).hexdigest()[:12]}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def ready(self) -> bool:
        """Whether it is there and whole; one whose Python has been removed since is not."""
        return (self.folder / COMPLETE).is_file() and self.python.exists()

    @property
    def how_to_make(self) -> str:
        """The line that makes it."""
        return f"python -m backends.venvs {self.name}"

    def ensure(self, run: Runner = install_run) -> None:
        """Make it unless it is ready; of several processes one makes it, the others wait.

        Raises:
            ToolMissingError: it cannot be made: no network, no such packages, no space.
        """
        if self.ready:
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel gives it back when its holder dies
            if not self.ready:  # made while we waited
                self._make(run)

    def _make(self, run: Runner) -> None:
        started_s = time.monotonic()
        _say(f"Making the virtual environment {self.name!r} in {self.folder} (once; a minute or two)")
        workdir = self.folder.with_suffix(".install")  # pip's log and temporary files
        for leftover in (self.folder, workdir):
            shutil.rmtree(leftover, ignore_errors=True)
        workdir.mkdir()
        pip = ["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-r", str(self.requirements)]
        pip += shlex.split(os.environ.get("PIP_ARGS", ""))
        for argv in ([sys.executable, "-m", "venv", str(self.folder)], [str(self.python), *pip]):
            try:
                done = run(argv, timeout_s=TIMEOUT_S, cwd=workdir)
            except AutoMcuError as error:
                raise self._failed(str(error)) from error
            if done.returncode != 0:
                said = [line for line in done.stderr.splitlines() if line.strip()]
                errors = [line for line in said if line.lower().startswith("error")] or said[-1:]
                raise self._failed(errors[0][:300] if errors else f"exit status {done.returncode}", workdir)
        shutil.rmtree(workdir)
        (self.folder / COMPLETE).write_text(self.requirements.read_text())
        _say(f"Made it in {time.monotonic() - started_s:.0f} s")

    def _failed(self, why: str, workdir: Path | None = None) -> ToolMissingError:
        log = f" Log: {workdir / LOG}." if workdir else ""
        return ToolMissingError(
            f"the virtual environment {self.name!r} could not be made: {why}. It needs the network once, or PIP_ARGS "
            f'for an index of your own: PIP_ARGS="..." {self.how_to_make}.{log}'
        )


ENVIRONMENTS = {path.stem: Environment(path.stem) for path in sorted(FOREIGN.glob("*.txt"))}


def main(names: list[str]) -> int:
    """Make environments by name, all where none is named; return the exit status, 2 where one cannot be made."""
    try:
        for name in names or ENVIRONMENTS:
            if name not in ENVIRONMENTS:
                raise unknown_name("environment", name, ENVIRONMENTS)
            ENVIRONMENTS[name].ensure()
            print(f"{name}: {ENVIRONMENTS[name].folder}")
    except AutoMcuError as error:
        _say(f"error: {error}")
        return 2
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
