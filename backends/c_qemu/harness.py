"""What lies around a network in a firmware: start-up, boot stage, serial harness and its port, compiled once."""

import hashlib
from pathlib import Path

from automcu_ray.problem.target import Boot, Core, Uart
from backends.c_qemu import stack
from backends.c_qemu.gcc_flags import COMPILE_FLAGS, CORE_FLAGS, uart_flags
from backends.c_qemu.gnu_tools import COMPILE_TIMEOUT_S, GCC, succeed
from backends.programs import Runner, scratch_folder

FIRMWARE = Path(__file__).parent / "firmware"


def sources(uart: Uart, boot: Boot | None) -> list[Path]:
    """Return the files in C that a harness is made of, with their headers."""
    return [FIRMWARE / name for name in ("harness.h", "uart_stm32.h", *(f"{unit}.c" for unit in units(uart, boot)))]


def units(uart: Uart, boot: Boot | None) -> list[str]:
    """Return what is compiled, by name."""
    return ["startup", "main", f"uart_{uart.kind}", *([f"boot_{boot}"] if boot else [])]


def flags(stream: bool) -> list[str]:
    """Return the macros that main.c wants; with `stream` it takes raw samples, too."""
    return [f"-DGUARD_BYTES={stack.GUARD_BYTES}u", *(["-DSTREAM"] if stream else [])]


def objects(core: Core, uart: Uart, boot: Boot | None, *, stream: bool, run: Runner) -> list[str]:
    """Return the harness as object files; compiled once for a core, port and boot stage, and for streams."""
    options = [*CORE_FLAGS[core], *COMPILE_FLAGS, *uart_flags(uart), *flags(stream)]
    names = units(uart, boot)
    folder = scratch_folder() / hashlib.sha256(f"{names} {options}".encode()).hexdigest()[:16]
    made = [folder / f"{name}.o" for name in names]
    if not all(path.exists() for path in made):
        folder.mkdir(exist_ok=True)
        files = [str(FIRMWARE / f"{name}.c") for name in names]
        succeed(run([GCC, *options, "-c", *files], timeout_s=COMPILE_TIMEOUT_S, cwd=folder))
    return [str(path) for path in made]
