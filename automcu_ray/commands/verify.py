"""Rebuild a bundle's firmware, run it in QEMU, and compare every figure with the manifest."""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from automcu_ray.core.errors import ConfigError
from automcu_ray.runtime import interruption
from automcu_ray.runtime.command import run_command
from backends.c_qemu.handover import CHECK, RECIPE
from backends.programs import Runner, run_confined

EPILOG = """
Examples:

  automcu verify runs/latest/bundle

  python3 verify.py          # the same without this project: the script lies in every bundle

Exit status: 0 all the same, 1 something differs, 2 a tool is missing or the folder holds no bundle.
"""
TIMEOUT_S = 1800.0
MOST_BYTES = 1 << 28  # of a bundle: 128 test vectors and the largest network take a fifth of it


def verify(bundle: Annotated[Path, typer.Argument(help="Folder of a bundle, e.g. runs/latest/bundle.")]) -> None:
    """Rebuild a bundle's firmware and run it on the emulated board: of each figure, same or different.

    The script is this installation's own, not the bundle's, and it runs confined where the machine allows that: no
    network, and nothing but a copy of the bundle can be written. The bundle's C is compiled, and run in QEMU alone.
    """
    interruption.postpone()
    status, said = check(bundle)
    print(said, end="")
    raise typer.Exit(status)


def check(bundle: Path, run: Runner = run_confined) -> tuple[int, str]:
    """Return the exit status of the check, and its lines.

    Raises:
        ConfigError: no bundle there, one too large, or with links in it.
    """
    if not (bundle / RECIPE).is_file():
        raise ConfigError(
            f"{bundle} should be a bundle with {RECIPE}, found none: give the folder, such as "
            "runs/latest/bundle. Bundles of other backends than c_qemu cannot be rebuilt here."
        )
    files = list(bundle.resolve().rglob("*"))
    if links := [path.name for path in files if path.is_symlink()]:
        raise ConfigError(f"{bundle} should hold plain files and folders, found the link {links[0]!r}.")
    if sum(path.stat().st_size for path in files) > MOST_BYTES:
        raise ConfigError(f"{bundle} should hold at most {MOST_BYTES >> 20} MB, found more.")
    with tempfile.TemporaryDirectory(prefix="automcu-verify-") as folder:
        shutil.copytree(bundle, Path(folder, "bundle"))
        shutil.copytree(CHECK, Path(folder, "check"))
        done = run([sys.executable, "-I", "check/verify.py", "bundle"], timeout_s=TIMEOUT_S, cwd=Path(folder))
    return done.returncode, done.stdout + done.stderr


def main() -> None:
    """Run the command; errors of the user's input or machine are one line on stderr and exit status 2."""
    run_command(verify, EPILOG)
