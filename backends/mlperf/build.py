"""A bundle's network with the firmware that speaks MLPerf Tiny's protocol, for its board or for QEMU's machine."""

from dataclasses import dataclass
from pathlib import Path

from automcu_ray.core.errors import ConfigError, ToolchainError
from automcu_ray.problem.target import Boot, McuTarget, MemoryRegion, Uart
from backends.boards.machines import find_machine
from backends.c_qemu import linker, stack
from backends.c_qemu.gcc_flags import COMPILE_FLAGS, CORE_FLAGS, LINK_FLAGS, uart_flags
from backends.c_qemu.gnu_tools import COMPILE_TIMEOUT_S, GCC, LINK_TIMEOUT_S, read_text, succeed
from backends.c_qemu.harness import FIRMWARE
from backends.c_qemu.linker import Layout
from backends.mlperf.kit import BAUDS
from backends.programs import Runner, run_confined

OWN = Path(__file__).parent / "firmware"
MODELS = ("ic01", "vww01", "kws01", "ic02")  # of the runner's names; ad01 and sww01 are no classification
PROTOCOL_STACK_BYTES = 1024  # frames of mlperf.c above net(), and of expf
_MACROS = ("NET_INPUT_BYTES", "NET_OUTPUT_BYTES")


@dataclass(frozen=True)
class Place:
    """Where a firmware runs: its memory, its serial port, and the clock that SysTick counts."""

    flash: MemoryRegion
    ram: MemoryRegion
    uart: Uart
    systick_hz: int
    start: int
    boot: Boot | None = None


def place_of(target: McuTarget, *, emulated: bool) -> Place:
    """Return the board itself, or its emulator's machine.

    Raises:
        ConfigError: it has no emulator, or no serial port that the firmware can drive.
    """
    if not emulated:
        if target.uart.kind == "none":
            raise ConfigError(f"target {target.name!r} has no uart in its file, through which MLPerf's runner asks.")
        clock_hz = target.uart.clock_hz or target.clock_hz
        return Place(target.flash, target.main_ram, target.uart, clock_hz, linker.start_origin(target), target.boot)
    if target.emulator is None:
        raise ConfigError(f"target {target.name!r} names no emulator: MLPerf's firmware can be built, not run here.")
    machine = find_machine(target.emulator.machine)
    start = machine.flash.origin if machine.start is None else machine.start
    return Place(machine.flash, machine.ram, machine.uart, machine.systick_hz, start)


def build(
    sources: Path,
    target: McuTarget,
    workdir: Path,
    *,
    model: str = "ic01",
    energy: bool = False,
    emulated: bool = False,
    run: Runner = run_confined,
) -> Path:
    """Return the ELF of a bundle's `src` folder in MLPerf Tiny's protocol, built in a new folder `workdir`.

    All of the board's memory is there for it, whatever the search was limited to: the protocol keeps a picture more.

    Raises:
        ConfigError: an unknown model, or energy mode without a timing pin in the target's file.
        ToolchainError: it does not compile, link or fit.
    """
    if model not in MODELS:
        raise ConfigError(f"unknown model {model[:40]!r} of MLPerf Tiny; known: {', '.join(MODELS)}.")
    place, flags = place_of(target, emulated=emulated), CORE_FLAGS[target.core]
    workdir.mkdir(parents=True)
    for path in [*sorted(sources.glob("*.[ch]")), FIRMWARE / "harness.h"]:
        (workdir / path.name).write_bytes(path.read_bytes())
    settings = [f"-DMODEL={c_string(model)}", f"-DTICKS_HZ={place.systick_hz}u"]
    settings += _energy(target, emulated=emulated) if energy else ["-DENERGY=0", *uart_flags(place.uart)]
    own = [OWN / "mlperf.c", FIRMWARE / "startup.c", FIRMWARE / f"uart_{place.uart.kind}.c"]
    own += [FIRMWARE / f"boot_{place.boot}.c"] if place.boot else []
    units = sorted(workdir.glob("*.c"))
    for path in [*units, *own]:
        argv = [GCC, *flags, *COMPILE_FLAGS, "-fcallgraph-info=su", *settings, "-I."]
        unit = [str(path) if path in own else path.name, "-o", f"{path.stem}.o"]
        succeed(run([*argv, "-c", *unit], timeout_s=COMPILE_TIMEOUT_S, cwd=workdir))
    calls = "".join(read_text(workdir / f"{path.stem}.ci") for path in units if path.stem in ("net", "stream"))
    sizes = _sizes(read_text(workdir / "net.h"))
    layout = Layout(
        flash_origin=place.flash.origin,
        flash_bytes=place.flash.size_bytes,
        ram_origin=place.ram.origin,
        ram_bytes=place.ram.size_bytes,
        start_origin=place.start,
        input_bytes=sizes["NET_INPUT_BYTES"],
        output_bytes=sizes["NET_OUTPUT_BYTES"],
        stack_bytes=stack.bound_bytes(calls) + PROTOCOL_STACK_BYTES,
    )
    (workdir / "mlperf.ld").write_text(layout.script(FIRMWARE / "link.ld"))
    objects = [f"{path.stem}.o" for path in [*units, *own]]
    argv = [GCC, *flags, *LINK_FLAGS, "-Tmlperf.ld", *objects, "-lm", "-o", "mlperf.elf"]
    done = succeed(run(argv, timeout_s=LINK_TIMEOUT_S, cwd=workdir))
    if over := linker.overflows(done.stderr):
        raise ToolchainError(f"MLPerf's firmware should fit into {target.name}, found {over} bytes over.")
    return workdir / "mlperf.elf"


def c_string(plain: str) -> str:
    """Return a C string literal of a name of ours, for a macro on GCC's command line."""
    return f'"{plain}"'


def _energy(target: McuTarget, *, emulated: bool) -> list[str]:
    pin = target.timing_pin
    if pin is None or (emulated and not (target.emulator and target.emulator.same_chip)):
        raise ConfigError(
            f"target {target.name!r}: energy mode needs a `timing_pin` in its file, whose falling edge the power "
            "monitor sees, and on an emulated board the same chip."
        )
    setup = (*target.uart.setup, pin.high, *pin.setup)
    words = ["-DENERGY=1", *uart_flags(target.uart.replace(setup=setup), BAUDS["energy"])]
    for name, write in (("HIGH", pin.high), ("LOW", pin.low)):
        words += [
            f"-DPIN_{name}_ADDRESS=(*(volatile uint32_t*){write.address:#x}u)",
            f"-DPIN_{name}_VALUE={write.value}u",
        ]
    return words


def _sizes(header: str) -> dict[str, int]:
    found = {}
    for line in header.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "#define" and words[1] in _MACROS and words[2].isdigit():
            found[words[1]] = int(words[2])
    if set(found) != set(_MACROS):
        raise ToolchainError(f"net.h of a bundle should define {' and '.join(_MACROS)}, found {sorted(found)}.")
    return found
