"""Targets and constraints as data, and what public board descriptions say about the same boards."""

import csv
import re
from itertools import pairwise
from pathlib import Path

import pytest

from automcu_ray.problem.target import BYTES_PER_KB, Constraints, McuTarget
from automcu_ray.runtime.config_files import CONFIGS, names, read_yaml
from backends.boards.machines import MACHINES

BOARDS_CSV = Path(__file__).resolve().parents[4] / "shared" / "data" / "boards" / "boards.csv"

# The row of boards.csv that describes a target's chip.
ROW_OF = {
    "apollo4p": "apollo4p_evb",
    "ensemble_e8_hp": "ensemble_e8_dk_hp",
    "max78000": "max78000evkit",
    "max78002": "max78002evkit",
    "nrf52832": "nrf52_dk",
    "nrf52840": "nrf52840_dk",
    "nrf5340": "nrf5340dk",
    "rp2040": "pico",
    "rp2350": "rpi_pico2",
    "stm32f030": "nucleo_f030r8",
    "stm32f401": "nucleo_f401re",
    "stm32f407": "disco_f407vg",
    "stm32f411": "nucleo_f411re",
    "stm32f429": "disco_f429zi",
    "stm32f446": "nucleo_f446re",
    "stm32f469": "disco_f469ni",
    "stm32f722": "nucleo_f722ze",
    "stm32f746": "nucleo_f746zg",
    "stm32f767": "nucleo_f767zi",
    "stm32g071": "nucleo_g071rb",
    "stm32g474": "nucleo_g474re",
    "stm32h563": "nucleo_h563zi",
    "stm32h723": "nucleo_h723zg",
    "stm32h743": "nucleo_h743zi",
    "stm32h747": "disco_h747xi",
    "stm32h7a3": "nucleo_h7a3zi_q",
    "stm32l073": "nucleo_l073rz",
    "stm32l432": "nucleo_l432kc",
    "stm32l475": "disco_l475vg_iot01a",
    "stm32l476": "nucleo_l476rg",
    "stm32l496": "nucleo_l496zg",
    "stm32l4r5": "nucleo_l4r5zi",
    "stm32l552": "nucleo_l552ze_q",
    "stm32u575": "nucleo_u575zi_q",
    "stm32wb55": "nucleo_wb55rg_p",
}

# Where a target and its row differ, and why the target says what it says.
DIFFERENCES = {
    ("max78000", "sram_kb"): "the row has 48 KB; the vendor's linker script has 128 KB",
    ("max78002", "flash_kb"): "the row has 1,024 KB; the vendor's linker script has 2,560 KB",
    ("max78002", "sram_kb"): "the row has 64 KB; the vendor's linker script has more",
    ("nrf5340", "sram_kb"): "the row leaves out 64 KB that its firmware lends to the network core",
    ("rp2040", "sram_kb"): "the row leaves out the two banks of 4 KB, which follow without a gap",
    ("stm32f407", "flash_kb"): "the row is the STM32F407VG; the target is the STM32F407VE of paper 000",
    ("stm32f429", "sram_kb"): "the row adds 64 KB of CCM, which lie apart",
    ("stm32f469", "sram_kb"): "the row adds 64 KB of CCM, which lie apart",
    ("stm32h743", "clock_mhz"): "the row is revision Y of the chip",
    ("stm32h747", "clock_mhz"): "the row is the clock of its power-on setting; the first core may run at 480 MHz",
    ("stm32l552", "clock_mhz"): "the row is a framework's setting; the chip may run at 110 MHz",
    ("stm32l552", "sram_kb"): "the row is SRAM1; SRAM2 follows without a gap",
    ("stm32wb55", "flash_kb"): "the row leaves the upper half to a radio stack",
}

# Rows without a target.
NO_TARGET = {
    "disco_f746ng": "the chip of nucleo_f746zg",
    "disco_f769ni": "the memories of nucleo_f767zi",
    "ensemble_e8_dk_he": "the row has a clock and no memories",
    "esp32-c3-devkitm-1": "RISC-V",
    "esp32-s2-saola-1": "Xtensa",
    "esp32-s3-devkitc-1": "Xtensa",
    "esp32cam": "Xtensa",
    "esp32dev": "Xtensa",
    "esp32s3box": "Xtensa",
    "nano33ble": "the chip of nrf52840_dk, less a boot loader",
    "nucleo_h753zi": "the memories of nucleo_h743zi",
    "rpipico2": "the chip of rpi_pico2, less the two banks of 4 KB",
    "sipeed_maix_k210": "RISC-V",
    "stm32h7p": "the row has a clock and no memories",
    "stm32n6570_dk": "no Flash of its own: what fits depends on the board's memory chips",
}


def read(name: str) -> McuTarget:
    return McuTarget.model_validate(read_yaml(CONFIGS / "target" / f"{name}.yaml"))


@pytest.mark.parametrize("name", names("target"))
def test_every_target_reads_and_cites_a_source_for_each_number(name: str) -> None:
    target = read(name)
    assert target.name == name
    sources = [target.clock_source, target.flash.source, *(region.source for region in target.ram.values())]
    assert all(len(source) > 10 for source in sources)
    regions = sorted((region.origin, region.origin + region.size_bytes) for region in target.ram.values())
    assert all(end <= start for (_, end), (start, _) in pairwise(regions))
    assert target.main_ram.size_bytes == max(region.size_bytes for region in target.ram.values())


@pytest.mark.parametrize("name", names("target"))
def test_what_follows_the_main_ram_without_a_gap_is_part_of_it_unless_another_processor_shares_it(name: str) -> None:
    target = read(name)
    end = target.main_ram.origin + target.main_ram.size_bytes
    assert all("shared with" in region.source for region in target.ram.values() if region.origin == end)
    if stated := re.search(r"([\d.]+)\s+KB (?:contiguous |AXI |)S?RAM", target.description):
        assert float(stated[1]) == target.main_ram.size_kb


@pytest.mark.parametrize("name", names("target"))
def test_an_emulator_can_hold_whatever_fits_the_target(name: str) -> None:
    target = read(name)
    if target.emulator is None:
        assert target.mark in ("build only", "vendor")
        return
    machine = MACHINES[target.emulator.machine]
    assert target.mark == "emulated"
    assert machine.ram.size_bytes >= target.main_ram.size_bytes
    assert machine.flash.size_bytes >= target.flash.size_bytes
    if target.emulator.same_chip:
        assert (machine.core, machine.uart.kind, machine.uart.base) == (target.core, target.uart.kind, target.uart.base)
        assert (machine.flash.origin, machine.ram.origin) == (target.flash.origin, target.main_ram.origin)
    else:
        larger = {"cortex-m0plus": "cortex-m3", "cortex-m7f": "cortex-m7d"}  # cores that know all of another's
        assert machine.core == larger.get(target.core, target.core)


def test_cores_and_marks_cover_what_the_project_promises() -> None:
    targets = [read(name) for name in names("target")]
    emulated = {target.core for target in targets if target.mark == "emulated"}
    assert {"cortex-m0plus", "cortex-m3", "cortex-m4f", "cortex-m7f", "cortex-m7d", "cortex-m33f"} <= emulated


def differences(target: McuTarget, row: dict[str, str]) -> set[str]:
    """Return the columns that a row fills with another number than the target's."""
    ours = {
        "clock_mhz": target.clock_hz / 1e6,
        "sram_kb": target.main_ram.size_kb,
        "flash_kb": target.flash.size_kb,
    }
    return {column for column, value in ours.items() if row[column] and float(row[column]) != value}


@pytest.mark.skipif(not BOARDS_CSV.exists(), reason="needs ../shared/data/boards/boards.csv")
def test_targets_are_boards_of_public_descriptions_and_every_difference_is_explained() -> None:
    with BOARDS_CSV.open(newline="") as file:
        rows = {row["board"]: row for row in csv.DictReader(file)}
    found = {(name, column) for name, row in ROW_OF.items() for column in differences(read(name), rows[row])}
    assert found == DIFFERENCES.keys()
    assert rows.keys() == set(ROW_OF.values()) | NO_TARGET.keys()
    assert len(set(ROW_OF.values())) >= 20


def test_kb_means_1024_bytes(stm32f405: McuTarget) -> None:
    assert BYTES_PER_KB == 1024
    assert stm32f405.main_ram.size_bytes == 131_072
    assert Constraints(ram_kb=24).ram_limit_bytes(stm32f405) == 24_576


def test_a_limit_above_the_board_is_the_board(stm32f405: McuTarget) -> None:
    assert Constraints(ram_kb=500).ram_limit_bytes(stm32f405) == 131_072
    assert Constraints().flash_limit_bytes(stm32f405) == 1_048_576


def test_a_split_sram_is_not_added_up(stm32f405: McuTarget) -> None:
    assert sum(region.size_kb for region in stm32f405.ram.values()) == 192
    assert stm32f405.main_ram.size_kb == 128
