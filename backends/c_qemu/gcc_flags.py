"""How GCC is called: for each core, for each file, for the link."""

from automcu_ray.problem.target import Core, Uart, Wait

BAUD = 115_200

CORE_FLAGS: dict[Core, tuple[str, ...]] = {
    "cortex-m0": ("-mcpu=cortex-m0", "-mthumb", "-mfloat-abi=soft"),
    "cortex-m0plus": ("-mcpu=cortex-m0plus", "-mthumb", "-mfloat-abi=soft"),
    "cortex-m3": ("-mcpu=cortex-m3", "-mthumb", "-mfloat-abi=soft"),
    "cortex-m4f": ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
    "cortex-m7f": ("-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"),
    "cortex-m7d": ("-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-d16"),
    "cortex-m33f": ("-mcpu=cortex-m33", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"),
    "cortex-m55d": ("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"),
}
COMPILE_FLAGS = ("-std=gnu11", "-O2", "-ffunction-sections", "-fdata-sections", "-Wall", "-Wextra")
LINK_FLAGS = (
    "-nostartfiles",
    "--specs=nano.specs",
    "--specs=nosys.specs",
    "-Wl,--gc-sections,--print-memory-usage",
    "-Wl,--noinhibit-exec",  # an ELF too large is still measured, then removed
)


def uart_flags(uart: Uart, baud: int = BAUD) -> list[str]:
    """Return the macros that the driver of a serial port wants: where it is, and what it needs on silicon."""
    flags = [f"-DUART_BASE={uart.base:#x}u"]
    if uart.setup:
        steps = [
            (step.address | 1, step.until) if isinstance(step, Wait) else (step.address, step.value)
            for step in uart.setup
        ]
        flags.append(f"-DUART_SETUP={','.join(f'{{{address:#x}u,{value:#x}u}}' for address, value in steps)}")
        flags += ["-DUART_WAITS"] if any(address & 1 for address, _ in steps) else []
    if uart.clock_hz is not None:
        flags += [f"-DUART_CLOCK_HZ={uart.clock_hz}u", f"-DUART_BAUD={baud}u"]
    return flags
