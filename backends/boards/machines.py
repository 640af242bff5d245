"""Machines of QEMU as data: where firmware lies in them, which serial port it speaks through, what a tick is."""

from dataclasses import dataclass

from automcu_ray.core.errors import unknown_name
from automcu_ray.problem.target import Core, MemoryRegion, Uart


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


_MPS2, _MPS2_TZ = "QEMU 7.2 hw/arm/mps2.c", "QEMU 7.2 hw/arm/mps2-tz.c"
_STM32, _NRF51 = "QEMU 7.2 hw/arm/stm32f405_soc.c", "QEMU 7.2 hw/arm/nrf51_soc.c"


def _mps2(core: Core) -> Machine:
    """Return an FPGA image of Arm's MPS2 board: AN385, AN386 and AN500 differ in their core alone."""
    return Machine(
        core=core,
        flash=_region(0, 4096, f"{_MPS2} (ZBT SSRAM 1)"),
        ram=_region(0x20000000, 4096, f"{_MPS2} (ZBT SSRAM 2 and 3)"),
        uart=Uart(kind="cmsdk", base=0x40004000, source=f"{_MPS2} (UART 0)"),
        systick_hz=25_000_000,
    )


MACHINES = {
    "microbit": Machine(
        core="cortex-m0",
        flash=_region(0, 256, _NRF51),
        ram=_region(0x20000000, 16, _NRF51),
        uart=Uart(kind="nrf51", base=0x40002000, source=f"{_NRF51} (UART)"),
        systick_hz=16_000_000,  # the chip has no SysTick, its model does
    ),
    "mps2-an385": _mps2("cortex-m3"),
    "mps2-an386": _mps2("cortex-m4f"),
    "mps2-an500": _mps2("cortex-m7d"),
    "mps2-an505": Machine(  # the secure world, in which it starts
        core="cortex-m33f",
        flash=_region(0x10000000, 4096, f"{_MPS2_TZ} (SSRAM 1, secure alias)"),
        ram=_region(0x38000000, 4096, f"{_MPS2_TZ} (SSRAM 2 and 3, contiguous, secure alias)"),
        uart=Uart(kind="cmsdk", base=0x50200000, source=f"{_MPS2_TZ} (UART 0, secure alias)"),
        systick_hz=20_000_000,
    ),
    "mps3-an547": Machine(  # in its DDR, since its ITCM, where it starts, has 512 KB only
        core="cortex-m55d",
        flash=_region(0x70000000, 65536, f"{_MPS2_TZ} (DDR, secure)"),
        ram=_region(0x78000000, 65536, f"{_MPS2_TZ} (DDR, secure)"),
        uart=Uart(kind="cmsdk", base=0x59303000, source=f"{_MPS2_TZ} (UART 0, secure alias)"),
        systick_hz=32_000_000,
        start=0,
    ),
    "netduinoplus2": Machine(
        core="cortex-m4f",
        flash=_region(0x08000000, 1024, _STM32),
        ram=_region(0x20000000, 192, f"{_STM32} (one piece; the chip has 128 KB and 64 KB apart)"),
        uart=Uart(kind="stm32_v1", base=0x40011000, source=f"{_STM32} (USART 1)"),
        systick_hz=168_000_000,
    ),
}


def find_machine(name: str) -> Machine:
    """Return a machine by QEMU's name for it.

    Raises:
        ConfigError: a machine that firmware is not prepared for.
    """
    if name not in MACHINES:
        raise unknown_name("QEMU machine", name, MACHINES)
    return MACHINES[name]
