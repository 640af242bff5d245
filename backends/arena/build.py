"""An artifact's C and our harness become one ELF; its linker script has the limits of the task."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from automcu_ray.core.errors import ConfigError, ToolchainError
from automcu_ray.problem.artifact import check_files, copy_files, read_options
from automcu_ray.problem.target import Constraints, McuTarget, Uart
from backends.boards.machines import Machine, find_machine
from backends.c_qemu.gcc_flags import COMPILE_FLAGS, CORE_FLAGS, uart_flags
from backends.c_qemu.gnu_tools import COMPILE_TIMEOUT_S, GCC, LINK_TIMEOUT_S
from backends.c_qemu.harness import FIRMWARE
from backends.c_qemu.linker import overflows, used_bytes
from backends.programs import Completed, Runner, run_program

HARNESS = Path(__file__).parent / "firmware"
OBJCOPY = "arm-none-eabi-objcopy"
PROGRAMS = (GCC, OBJCOPY)
CORES = ("cortex-m3", "cortex-m4f", "cortex-m7f", "cortex-m7d")  # ARMv7-M, whose MPU the guard sets
BOOT_DELAY_TICKS = 4096
WINDOW_BYTES = 120 * 1024  # of RAM, for the artifact; the harness has 8 KB behind it: in all what an STM32F405 has
RESERVED_FLASH_BYTES = 16 * 1024  # for vectors and harness, before the artifact's
DIAGNOSIS_CHARS = 2000
_HARNESS_FLAGS = ("-ffreestanding", "-fno-tree-loop-distribute-patterns", "-Wno-unused-parameter")


@dataclass(frozen=True)
class Built:
    """A linked firmware: its file and that one's SHA-256, and what the artifact takes, in bytes.

    `ram_bytes` is all memory that the artifact can reach: data, stack, input and output; sizes are None where a
    vendor's tools build. `over` are the bytes by which a region (RAM, FLASH) is exceeded; then there is no ELF.
    `hashed` is the file whose hash it is, where that is not what is flashed.
    """

    elf: Path | None
    sha256: str
    ram_bytes: int | None
    flash_bytes: int | None
    over: dict[str, int]
    hashed: Path | None = None


def run_alone(argv: Sequence[str], *, timeout_s: float, cwd: Path) -> Completed:
    """Run a compiler on what a stranger wrote: it sees `cwd` and the toolchain alone, or does not run at all."""
    return run_program(argv, timeout_s=timeout_s, cwd=cwd, alone=True)


def machine_of(target: McuTarget) -> Machine:
    """Return the emulated machine on which a target's artifacts run.

    Raises:
        ConfigError: none, or one whose memory protection the harness does not know.
    """
    machine = find_machine(target.emulator.machine) if target.emulator else None
    if machine is None or machine.core not in CORES or machine.start is not None:
        raise ConfigError(
            f"target {target.name!r}: the arena wants an emulated Cortex-M3, M4 or M7, whose MPU guards the harness: "
            "take stm32f405."
        )
    return machine


def build(
    artifact: Path,
    workdir: Path,
    *,
    target: McuTarget,
    constraints: Constraints,
    input_bytes: int,
    output_bytes: int,
    run: Runner = run_alone,
) -> Built:
    """Return the firmware of an artifact, built in a new folder `workdir`; what does not fit is no error.

    The artifact's objects are linked among themselves first, with the C library that they want, and then hide every
    name but `net`: nothing of theirs can stand in for a function that the privileged harness calls.

    Raises:
        ToolchainError: it does not compile or link; the message is the compiler's diagnosis.
    """
    copy_files(artifact, workdir)
    machine, options = machine_of(target), read_options(workdir)
    flags = CORE_FLAGS[machine.core]
    sources = [path.name for path in check_files(workdir) if path.suffix == ".c"]
    compiled = [GCC, *flags, *COMPILE_FLAGS, "-w", "-fno-common", "-fdiagnostics-color=never", "-c", *sources]
    _succeed(run(compiled, timeout_s=COMPILE_TIMEOUT_S, cwd=workdir))
    objects = [f"{Path(name).stem}.o" for name in sources]
    libraries = ("-Wl,--start-group", "-lm", "-lc_nano", "-lgcc", "-Wl,--end-group")
    joined = [GCC, *flags, "-r", "-nostdlib", "-Wl,-u,net", *objects, *libraries, "-o", "artifact.o"]
    _succeed(run(joined, timeout_s=LINK_TIMEOUT_S, cwd=workdir))
    hidden = [OBJCOPY, "--keep-global-symbol=net", "artifact.o"]
    _succeed(run(hidden, timeout_s=LINK_TIMEOUT_S, cwd=workdir))
    harness = workdir / "harness"
    same_chip = target.emulator is not None and target.emulator.same_chip
    _compile_harness(machine, target.uart if same_chip else machine.uart, harness, run)
    limits = {"RAM": constraints.ram_limit_bytes(target), "FLASH": constraints.flash_limit_bytes(target)}
    sizes = {"STACK_BYTES": options.stack_bytes, "INPUT_BYTES": input_bytes, "OUTPUT_BYTES": output_bytes}
    _write_script(workdir / "arena.ld", machine, limits, sizes)
    linked = [
        *(GCC, *flags, "-nostdlib", "-nostartfiles", "-Tarena.ld", "artifact.o"),
        *(f"harness/{path.name}" for path in sorted(harness.glob("*.o"))),
        "-Wl,--gc-sections,--print-memory-usage,--orphan-handling=error,--noinhibit-exec",
        *("-o", "firmware.elf"),
    ]
    done = run(linked, timeout_s=LINK_TIMEOUT_S, cwd=workdir)
    over = overflows(done.stderr)
    if not over:
        _succeed(done)
        if "error:" in done.stderr or "undefined reference" in done.stderr or "from `" in done.stderr:
            raise ToolchainError(diagnosis(done.stderr))
    used = used_bytes(done.stdout)
    elf = workdir / "firmware.elf"
    if over:
        elf.unlink(missing_ok=True)
        return Built(None, "", used["RAM"], used["FLASH"], over)
    return Built(elf, hashlib.sha256(elf.read_bytes()).hexdigest(), used["RAM"], used["FLASH"], {})


def _compile_harness(machine: Machine, uart: Uart, folder: Path, run: Runner) -> None:
    """Compile our own copy of the harness in a folder that no compiler of the artifact has seen."""
    folder.mkdir()
    log2 = (machine.flash.size_bytes - 1).bit_length()
    settings = (
        *uart_flags(uart),
        f"-DFLASH_ORIGIN={machine.flash.origin:#x}u",
        f"-DFLASH_LOG2={log2}u",
        f"-DBOOT_DELAY_TICKS={BOOT_DELAY_TICKS}u",
    )
    sources = [HARNESS / "main.c", HARNESS / "guard.c", HARNESS / "clock.c", FIRMWARE / f"uart_{uart.kind}.c"]
    includes = (f"-I{HARNESS}", f"-I{FIRMWARE}")
    flags = [*CORE_FLAGS[machine.core], *COMPILE_FLAGS, *_HARNESS_FLAGS, *settings, *includes]
    _succeed(run([GCC, *flags, "-c", *map(str, sources)], timeout_s=COMPILE_TIMEOUT_S, cwd=folder))


def _write_script(path: Path, machine: Machine, limits: dict[str, int], sizes: dict[str, int]) -> None:
    values = {
        "START_ORIGIN": f"{machine.flash.origin:#x}",
        "HARNESS_FLASH_ORIGIN": f"{machine.flash.origin + 1024:#x}",
        "FLASH_ORIGIN": f"{machine.flash.origin + RESERVED_FLASH_BYTES:#x}",
        "FLASH_BYTES": min(limits["FLASH"], machine.flash.size_bytes - RESERVED_FLASH_BYTES),
        "RAM_ORIGIN": f"{machine.ram.origin:#x}",
        "RAM_BYTES": min(limits["RAM"], WINDOW_BYTES),
        "HARNESS_RAM_ORIGIN": f"{machine.ram.origin + WINDOW_BYTES:#x}",
        **sizes,
    }
    text = (HARNESS / "arena.ld").read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    path.write_text(text)


def diagnosis(text: str) -> str:
    """Return what a compiler says, short enough for a prompt: its first error, the line before it, and what follows."""
    lines = [line for line in text.splitlines() if line.strip() and "warning:" not in line]
    errors = (at for at, line in enumerate(lines) if "error" in line.lower() or "undefined reference" in line)
    return "\n".join(lines[max(next(errors, 0) - 1, 0) :])[:DIAGNOSIS_CHARS] or "the compiler failed, and said nothing"


def _succeed(done: Completed) -> Completed:
    if done.returncode != 0:
        raise ToolchainError(diagnosis(done.stderr))
    return done
