"""A vendor's project around an artifact: the harness' sources beside it, built by the vendor's tools, confined."""

import functools
import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from automcu_ray.core.errors import ToolchainError
from automcu_ray.problem.artifact import check_files
from backends.arena.build import HARNESS, Built, diagnosis
from backends.c_qemu.harness import FIRMWARE
from backends.programs import Runner, run_program

VENDOR = HARNESS / "vendor"
BOOT_DELAY_US = 2_000_000  # paper 001, appendix D: without it a sleeping MAX78000 locks its debug port
BUILD_TIMEOUT_S = 900.0
_SHARED = (HARNESS / "main.c", HARNESS / "arena.h", FIRMWARE / "harness.h")


def confined_runner(readable: Sequence[Path]) -> Runner:
    """Return what runs a vendor's tools on a stranger's code: they see their own folder and the SDK alone."""
    return functools.partial(run_program, alone=True, readable=tuple(readable))


def lay_out(artifact: Path, sources: Path, port: Path) -> list[str]:
    """Copy an artifact and the harness with a chip's port into a folder of C files; return the names of the latter."""
    sources.mkdir(parents=True, exist_ok=True)
    names = []
    for path in (*_SHARED, VENDOR / "vendor.c", VENDOR / "port.h", VENDOR / "app.h"):
        shutil.copyfile(path, sources / path.name)
        names.append(path.name)
    shutil.copyfile(port, sources / "port.c")
    for path in check_files(artifact):
        shutil.copyfile(path, sources / path.name, follow_symlinks=False)
    return [*names, "port.c"]


def definitions(input_bytes: int, output_bytes: int, **more: int) -> list[str]:
    """Return the harness' macros as arguments of a compiler."""
    values = {"INPUT_BYTES": input_bytes, "OUTPUT_BYTES": output_bytes, "BOOT_DELAY_TICKS": BOOT_DELAY_US, **more}
    return [f"-D{name}={value}" for name, value in values.items()]


def made(run: Runner, argv: Sequence[str], folder: Path, firmware: Path, image: Path | None = None) -> Built:
    """Run a vendor's build in a folder, which has to leave `firmware`; return it, or `image` as what is flashed.

    Sizes are not read: the vendor's own linker script has the chip's regions, and what does not fit does not link.

    Raises:
        ToolchainError: it failed; the message is its diagnosis.
    """
    done = run(argv, timeout_s=BUILD_TIMEOUT_S, cwd=folder)
    if done.returncode != 0:
        raise ToolchainError(diagnosis(f"{done.stderr}\n{done.stdout}"))
    if not firmware.is_file() or firmware.is_symlink() or not firmware.stat().st_size:
        raise ToolchainError(f"{Path(argv[0]).name} should leave {firmware.name}, found none.")
    return Built(image or firmware, hashlib.sha256(firmware.read_bytes()).hexdigest(), None, None, {}, firmware)
