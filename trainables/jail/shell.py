"""A command that an agent wrote, in a sandbox of its own: one folder to write in, no network, bounded in everything."""

import os
import sys
from pathlib import Path

from automcu_ray.core.errors import ToolchainError
from automcu_ray.runtime.config import JailConfig
from backends.programs import run_program
from trainables.jail.sandbox import WRITABLE, sandbox

DISK_BYTES = 64 * 2**20
SHELL_S = 60.0


class JailedShell:
    """Runs shell commands; Python with numpy, and the compilers of the system, are there."""

    def __init__(self, config: JailConfig, *, timeout_s: float = SHELL_S) -> None:
        self.config, self.timeout_s = config, timeout_s

    def __call__(self, command: str, folder: Path) -> str:
        """Return the exit status and what the command said; it can change `folder` and nothing else."""
        _open_to_all(folder)
        environment = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": WRITABLE,
            "TMPDIR": WRITABLE,
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        limits = (
            f"--nproc={self.config.processes}",
            f"--as={self.config.memory_mb * 2**20}",
            f"--cpu={round(self.timeout_s)}",
        )
        settings = [f"{key}={value}" for key, value in environment.items()]
        inside = ["env", "-i", *settings, "prlimit", *limits, "bash", "-c", command]
        argv = [*sandbox(gpu=False, writable=folder), *inside]
        try:
            done = run_program(argv, timeout_s=self.timeout_s, cwd=folder, disk_bytes=DISK_BYTES)
        except ToolchainError:
            return f"killed: a command should end within {self.timeout_s:g} s and {DISK_BYTES >> 20} MB"
        return f"exit {done.returncode}\n{done.stdout}{done.stderr}"


def _open_to_all(folder: Path) -> None:
    """Let the jail's own user write in a folder, which is a copy for it."""
    for parent, _, names in os.walk(folder):
        os.chmod(parent, 0o777)
        for name in names:
            os.chmod(Path(parent, name), 0o666)
