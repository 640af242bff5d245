import subprocess
from pathlib import Path

import pytest

from automcu_ray.problem.target import Uart
from backends.c_qemu.backend import FIRMWARE
from backends.c_qemu.gcc_flags import uart_flags
from tests.backends.conftest import read_target

REGISTERS = {
    "RCC_AHB1ENR": 0x40023830,
    "RCC_APB2ENR": 0x40023844,
    "GPIOA_MODER": 0x40020000,
    "GPIOA_AFRH": 0x40020024,
    "USART1_BRR": 0x40011008,
    "USART1_CR1": 0x4001100C,
}
MAIN = """
#include "harness.h"
#include <stdio.h>
#include <sys/mman.h>
int main(void) {
    void *const at = (void *)0x40000000;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap(at, 0x40000, PROT_READ | PROT_WRITE, flags, -1, 0) != at) return 1;
    uart_init();
    const unsigned long registers[] = {%s};
    for (int number = 0; number < %d; number++) printf("%%u\\n", *(volatile unsigned *)registers[number]);
}
"""


def registers_after_init(uart: Uart, baud: int, folder: Path) -> dict[str, int]:
    """What the chip's registers hold, by the driver compiled for this computer over memory at the chip's addresses."""
    (folder / "main.c").write_text(MAIN % (",".join(map(hex, REGISTERS.values())), len(REGISTERS)))
    driver = FIRMWARE / f"uart_{uart.kind}.c"
    argv = ["gcc", "-Wno-int-to-pointer-cast", f"-I{FIRMWARE}", *uart_flags(uart, baud), "main.c", str(driver)]
    subprocess.run([*argv, "-o", "probe"], cwd=folder, check=True, timeout=60)
    printed = subprocess.run([folder / "probe"], capture_output=True, text=True, check=True, timeout=60).stdout
    return dict(zip(REGISTERS, map(int, printed.split()), strict=True))


@pytest.mark.usefixtures("gcc")
@pytest.mark.parametrize("chip", ["stm32f405", "stm32f407"])
@pytest.mark.parametrize("baud", [115_200, 9600])
def test_a_real_stm32f4_gets_clocks_pins_and_baud_rate(chip: str, baud: int, tmp_path: Path) -> None:
    found = registers_after_init(read_target(chip).uart, baud, tmp_path)
    assert found["RCC_AHB1ENR"] & 1  # GPIOA
    assert found["RCC_APB2ENR"] >> 4 & 1  # USART1
    assert [found["GPIOA_MODER"] >> 2 * pin & 3 for pin in (9, 10)] == [2, 2]  # an alternate function
    assert [found["GPIOA_MODER"] >> 2 * pin & 3 for pin in (13, 14, 15)] == [2, 2, 2]  # the debug port, as after reset
    assert [found["GPIOA_AFRH"] >> 4 * (pin - 8) & 15 for pin in (9, 10)] == [7, 7]  # USART1
    assert 16_000_000 / found["USART1_BRR"] == pytest.approx(baud, rel=0.002)
    assert found["USART1_CR1"] == 0x200C  # UE, TE, RE


def test_an_emulated_port_needs_its_address_alone() -> None:
    assert uart_flags(Uart(kind="cmsdk", base=0x40004000)) == ["-DUART_BASE=0x40004000u"]
