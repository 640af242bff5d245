import subprocess
import threading
from pathlib import Path

import pytest

from automcu_ray.problem.target import Uart, Wait, Write
from backends.c_qemu.gcc_flags import BAUD, CORE_FLAGS, uart_flags
from backends.c_qemu.harness import FIRMWARE
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
    %s
    uart_init();
    const unsigned long registers[] = {%s};
    for (int number = 0; number < %d; number++) printf("%%u\\n", *(volatile unsigned *)registers[number]);
}
"""


def after_init(uart: Uart, registers: dict[str, int], folder: Path, baud: int = BAUD) -> dict[str, int]:
    """What registers hold, by the driver compiled for this computer, which has memory at the chip's addresses.

    What is waited for is there at once.
    """
    waits = (step for step in uart.setup if isinstance(step, Wait))
    ready = "".join(f"*(volatile unsigned *){wait.address:#x}ul = {wait.until:#x}u;" for wait in waits)
    (folder / "main.c").write_text(MAIN % (ready, ",".join(map(hex, registers.values())), len(registers)))
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


@pytest.mark.usefixtures("host_gcc")
def test_an_rp2040_gets_its_crystal_pins_and_baud_rate(tmp_path: Path) -> None:
    registers = {"XOSC": 0x40024000, "REF": 0x40008030, "PERI": 0x40008048, "RESETS": 0x4000F000}
    registers |= {"GPIO0": 0x40014004, "GPIO1": 0x4001400C, "IBRD": 0x40034024, "FBRD": 0x40034028}
    registers |= {"LCR_H": 0x4003402C, "CR": 0x40034030}
    found = after_init(read_target("rp2040").uart, registers, tmp_path)
    assert found["XOSC"] == 0xFAB << 12 | 0xAA0 and found["REF"] == 2 and found["PERI"] == 1 << 11
    assert found["RESETS"] == 1 << 5 | 1 << 8 | 1 << 22  # IO_BANK0, PADS_BANK0, UART0
    assert found["GPIO0"] == found["GPIO1"] == 2
    assert 12_000_000 / (16 * (found["IBRD"] + found["FBRD"] / 64)) == pytest.approx(BAUD, rel=0.002)
    assert found["LCR_H"] == 3 << 5 | 1 << 4 and found["CR"] == 1 << 9 | 1 << 8 | 1  # 8 bits, FIFO; RXE, TXE, UARTEN


@pytest.mark.usefixtures("host_gcc")
def test_a_wait_goes_on_when_all_bits_are_there_and_not_before(tmp_path: Path) -> None:
    """The bits that are waited for are set by a write to the same register, or never."""
    late = Write(address=0x40000000, value=3)
    port = {"kind": "pl011", "base": 0x40010000}
    waits = (late, Wait(address=0x40000000, until=2), Write(address=0x40000004, value=7))
    (tmp_path / "main.c").write_text(MAIN % ("", "0x40000004", 1))
    argv = ["gcc", "-Wno-int-to-pointer-cast", f"-I{FIRMWARE}", "main.c", str(FIRMWARE / "uart_pl011.c"), "-o", "probe"]
    for steps, ends in ((waits, True), ((late.model_copy(update={"value": 1}), *waits[1:]), False)):
        flags = uart_flags(Uart.model_validate({**port, "setup": steps}))
        assert "-DUART_WAITS" in flags
        subprocess.run([*argv, *flags], cwd=tmp_path, check=True, timeout=60)
        try:
            printed = subprocess.run([tmp_path / "probe"], capture_output=True, text=True, timeout=2 if ends else 0.3)
        except subprocess.TimeoutExpired:
            assert not ends
        else:
            assert ends and printed.stdout == "7\n"


ECHO = """
#include "harness.h"
static volatile uint8_t added = 1;
void fault(void) { for (;;) {} }
void systick_wrap(void) {}
int main(void) {
    uart_init();
    for (int left = 4; left; left--) uart_put((uint8_t)(uart_get() + added));
    for (;;) {}
}
"""
SCRIPT = """
MEMORY { FLASH : ORIGIN = 0, LENGTH = 64K  RAM : ORIGIN = 0x20000000, LENGTH = 16K }
SECTIONS {
    .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) } > FLASH
    .data : { _data_start = .; *(.data*) . = ALIGN(4); _data_end = .; } > RAM AT > FLASH
    _data_load = LOADADDR(.data);
    .bss : { _bss_start = .; *(.bss*) . = ALIGN(4); _bss_end = .; } > RAM
    _stack_end = 0x20004000;
}
"""


@pytest.mark.usefixtures("qemu")
def test_a_pl011_talks_both_ways_in_qemu(tmp_path: Path) -> None:
    """On a Stellaris board: QEMU 7.2 has no RP2040, but the same port (hw/arm/stellaris.c, at 0x4000C000)."""
    (tmp_path / "echo.c").write_text(ECHO)
    (tmp_path / "echo.ld").write_text(SCRIPT)
    flags = [*CORE_FLAGS["cortex-m3"], *uart_flags(Uart(kind="pl011", base=0x4000C000, clock_hz=12_000_000))]
    sources = ["echo.c", str(FIRMWARE / "startup.c"), str(FIRMWARE / "uart_pl011.c")]
    argv = ["arm-none-eabi-gcc", *flags, "-O2", "-nostdlib", f"-I{FIRMWARE}", "-Techo.ld", *sources, "-o", "echo.elf"]
    subprocess.run(argv, cwd=tmp_path, check=True, timeout=60)
    machine = ["qemu-system-arm", "-machine", "lm3s6965evb", "-kernel", "echo.elf", "-display", "none"]
    with subprocess.Popen(
        [*machine, "-monitor", "none", "-serial", "stdio"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as board:
        watchdog = threading.Timer(60, board.kill)
        watchdog.start()
        try:
            assert board.stdin is not None and board.stdout is not None
            board.stdin.write(b"abc\xfe")
            board.stdin.flush()
            assert board.stdout.read(4) == b"bcd\xff"
        finally:
            watchdog.cancel()
            board.kill()


def test_an_emulated_port_needs_its_address_alone() -> None:
    assert uart_flags(Uart(kind="cmsdk", base=0x40004000)) == ["-DUART_BASE=0x40004000u"]
