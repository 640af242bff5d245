import subprocess
from pathlib import Path

import pytest

from automcu_ray.problem.target import Uart
from backends.c_qemu.backend import FIRMWARE
from backends.c_qemu.gcc_flags import BAUD, uart_flags
from tests.backends.conftest import read_target

MAIN = """
#include "harness.h"
#include <stdio.h>
#include <sys/mman.h>
int main(void) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, both = PROT_READ | PROT_WRITE;
    void *const places[] = {(void *)0x40000000, (void *)0x50000000, (void *)0x58000000};
    for (int number = 0; number < 3; number++)
        if (mmap(places[number], 0x40000, both, flags, -1, 0) != places[number]) return 1;
    uart_init();
    const unsigned long registers[] = {%s};
    for (int number = 0; number < %d; number++) printf("%%u\\n", *(volatile unsigned *)registers[number]);
}
"""


def after_init(uart: Uart, registers: dict[str, int], folder: Path, baud: int = BAUD) -> dict[str, int]:
    """What registers hold, by the driver compiled for this computer, which has memory at the chip's addresses."""
    (folder / "main.c").write_text(MAIN % (",".join(map(hex, registers.values())), len(registers)))
    driver = FIRMWARE / f"uart_{uart.kind}.c"
    argv = ["gcc", "-Wno-int-to-pointer-cast", f"-I{FIRMWARE}", *uart_flags(uart, baud), "main.c", str(driver)]
    subprocess.run([*argv, "-o", "probe"], cwd=folder, check=True, timeout=60)
    printed = subprocess.run([folder / "probe"], capture_output=True, text=True, check=True, timeout=60).stdout
    return dict(zip(registers, map(int, printed.split()), strict=True))


def pins(register: int, bits: int, *numbers: int) -> list[int]:
    """What a register of so many bits a pin says of these pins."""
    return [register >> bits * number & (1 << bits) - 1 for number in numbers]


@pytest.mark.usefixtures("host_gcc")
@pytest.mark.parametrize("chip", ["stm32f405", "stm32f407"])
@pytest.mark.parametrize("baud", [115_200, 9600])
def test_an_stm32f4_gets_clocks_pins_and_baud_rate(chip: str, baud: int, tmp_path: Path) -> None:
    registers = {"AHB1ENR": 0x40023830, "APB2ENR": 0x40023844, "MODER": 0x40020000, "AFRH": 0x40020024}
    registers |= {"BRR": 0x40011008, "CR1": 0x4001100C}
    found = after_init(read_target(chip).uart, registers, tmp_path, baud)
    assert pins(found["AHB1ENR"], 1, 0) == pins(found["APB2ENR"], 1, 4) == [1]  # GPIOA, USART1
    assert pins(found["MODER"], 2, 9, 10) == [2, 2] == pins(found["MODER"], 2, 13, 14)  # 13, 14: the debug port
    assert pins(found["AFRH"], 4, 1, 2) == [7, 7]  # PA9, PA10
    assert 16_000_000 / found["BRR"] == pytest.approx(baud, rel=0.002)
    assert found["CR1"] == 0x200C  # UE, TE, RE


@pytest.mark.usefixtures("host_gcc")
def test_an_stm32h7_gets_clocks_pins_and_baud_rate(tmp_path: Path) -> None:
    registers = {"AHB4ENR": 0x580244E0, "APB1LENR": 0x580244E8, "MODER": 0x58020C00, "AFRH": 0x58020C24}
    registers |= {"CR1": 0x40004800, "BRR": 0x4000480C}
    found = after_init(read_target("stm32h723").uart, registers, tmp_path)
    assert pins(found["AHB4ENR"], 1, 3) == pins(found["APB1LENR"], 1, 18) == [1]  # GPIOD, USART3
    assert pins(found["MODER"], 2, 8, 9) == [2, 2] and pins(found["MODER"], 2, 7, 10) == [3, 3]
    assert pins(found["AFRH"], 4, 0, 1) == [7, 7]
    assert 64_000_000 / found["BRR"] == pytest.approx(BAUD, rel=0.002)
    assert found["CR1"] == 0b1101  # TE, RE, UE


@pytest.mark.usefixtures("host_gcc")
@pytest.mark.parametrize(("chip", "transmit", "receive"), [("nrf51822", 24, 25), ("nrf52840", 6, 8)])
def test_an_nrf_gets_its_crystal_pins_and_baud_rate(chip: str, transmit: int, receive: int, tmp_path: Path) -> None:
    registers = {"HFCLKSTART": 0x40000000, "PSELTXD": 0x4000250C, "PSELRXD": 0x40002514, "BAUDRATE": 0x40002524}
    registers |= {"ENABLE": 0x40002500, "OUTSET": 0x50000508}
    registers |= {"transmit": 0x50000700 + 4 * transmit, "receive": 0x50000700 + 4 * receive}
    assert after_init(read_target(chip).uart, registers, tmp_path) == {
        "HFCLKSTART": 1, "PSELTXD": transmit, "PSELRXD": receive, "BAUDRATE": 0x01D7E000, "ENABLE": 4,
        "OUTSET": 1 << transmit, "transmit": 3, "receive": 0,
    }  # fmt: skip


def test_an_emulated_port_needs_its_address_alone() -> None:
    assert uart_flags(Uart(kind="cmsdk", base=0x40004000)) == ["-DUART_BASE=0x40004000u"]
