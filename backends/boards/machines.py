"""Machines of QEMU as data: where firmware lies in them, which serial port it speaks through, what a tick is."""

from dataclasses import dataclass

from automcu_ray.errors import unknown_name
from automcu_ray.target import Core, MemoryRegion, Uart


@dataclass(frozen=True)
class Machine:
    """One machine; `start` is the address it starts from, where that is not its Flash.

    `core` is the one it has, `systick_hz` the clock that SysTick counts.
    """

    core: Core
    flash: MemoryRegion
    ram: MemoryRegion
    uart: Uart
    systick_hz: int
    start: int | None = None


def _region(origin: int, size_kb: float, source: str) -> MemoryRegion:
    return MemoryRegion(origin=origin, size_kb=size_kb, source=source)


def _mps2(core: Core) -> Machine:
    """Return an FPGA image of Arm's MPS2 board: AN385, AN386 and AN500 differ in their core alone."""
    source = "QEMU 7.2 hw/arm/mps2.c"
    return Machine(
        core=core,
        flash=_region(0, 4096, f"{source} (ZBT SSRAM 1)"),
        ram=_region(0x20000000, 4096, f"{source} (ZBT SSRAM 2 and 3)"),
        uart=Uart(kind="cmsdk", base=0x40004000, source=f"{source} (UART 0)"),
        systick_hz=25_000_000,
    )


def _an505() -> Machine:
    """Return the MPS2 with a Cortex-M33; addresses are those of the secure world, in which it starts."""
    source = "QEMU 7.2 hw/arm/mps2-tz.c"
    return Machine(
        core="cortex-m33f",
        flash=_region(0x10000000, 4096, f"{source} (SSRAM 1, secure alias)"),
        ram=_region(0x38000000, 4096, f"{source} (SSRAM 2 and 3, contiguous, secure alias)"),
        uart=Uart(kind="cmsdk", base=0x50200000, source=f"{source} (UART 0, secure alias)"),
        systick_hz=20_000_000,
    )


def _an547() -> Machine:
    """Return the MPS3 with a Cortex-M55: firmware in its DDR, since its ITCM, where it starts, has 512 KB only."""
    source = "QEMU 7.2 hw/arm/mps2-tz.c"
    return Machine(
        core="cortex-m55d",
        flash=_region(0x70000000, 65536, f"{source} (DDR, secure)"),
        ram=_region(0x78000000, 65536, f"{source} (DDR, secure)"),
        uart=Uart(kind="cmsdk", base=0x59303000, source=f"{source} (UART 0, secure alias)"),
        systick_hz=32_000_000,
        start=0,
    )


def _netduinoplus2() -> Machine:
    source = "QEMU 7.2 hw/arm/stm32f405_soc.c"
    return Machine(
        core="cortex-m4f",
        flash=_region(0x08000000, 1024, source),
        ram=_region(0x20000000, 192, f"{source} (one piece; the chip has 128 KB and 64 KB apart)"),
        uart=Uart(kind="stm32_v1", base=0x40011000, source=f"{source} (USART 1)"),
        systick_hz=168_000_000,
    )


def _microbit() -> Machine:
    source = "QEMU 7.2 hw/arm/nrf51_soc.c"
    return Machine(
        core="cortex-m0",
        flash=_region(0, 256, source),
        ram=_region(0x20000000, 16, source),
        uart=Uart(kind="nrf51", base=0x40002000, source=f"{source} (UART)"),
        systick_hz=16_000_000,  # the chip has no SysTick, its model does
    )


MACHINES = {
    "microbit": _microbit(),
    "mps2-an385": _mps2("cortex-m3"),
    "mps2-an386": _mps2("cortex-m4f"),
    "mps2-an500": _mps2("cortex-m7d"),
    "mps2-an505": _an505(),
    "mps3-an547": _an547(),
    "netduinoplus2": _netduinoplus2(),
}


def find_machine(name: str) -> Machine:
    """Return a machine by QEMU's name for it.

    Raises:
        ConfigError: a machine that firmware is not prepared for.
    """
    if name not in MACHINES:
        raise unknown_name("QEMU machine", name, MACHINES)
    return MACHINES[name]
