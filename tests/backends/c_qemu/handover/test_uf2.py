"""UF2 as boot loaders read it, and the boot stages in front of a firmware."""

import json
import struct
from pathlib import Path

import pytest

from automcu_ray.problem.target import Constraints
from automcu_ray.runtime.config_files import names
from automcu_ray.testing.networks import deployed_network
from backends.c_qemu.backend import CQemuBackend
from backends.c_qemu.handover.uf2 import uf2
from tests.backends.c_qemu.handover.bundles import make_bundle
from tests.backends.conftest import read_target

FAMILIES = {"rp2040": 0xE48BFF56, "rp2350": 0xE48BFF59, "feather_nrf52840": 0xADA52840}  # of microsoft/uf2's list


def flashed(data: bytes, family: int) -> dict[int, int]:
    """What a boot loader of that family writes, byte by byte: blocks of others, and what is no block, do nothing."""
    memory: dict[int, int] = {}
    for start in range(0, len(data), 512):
        block = data[start : start + 512]
        one, two, flags, address, size, _, _, found = struct.unpack("<8I", block[:32])
        if (one, two, block[508:]) != (0x0A324655, 0x9E5D5157, bytes.fromhex("306fb10a")) or not flags & 0x2000:
            continue
        if found == family and not flags & 1:
            memory |= dict(zip(range(address, address + size), block[32 : 32 + size], strict=True))
    return memory


@pytest.mark.parametrize("size", [1, 256, 700])
def test_the_blocks_together_are_the_image(size: int) -> None:
    image = bytes(number % 251 for number in range(size))
    made = uf2(image, 0x10000000, FAMILIES["rp2040"])
    memory = flashed(made, FAMILIES["rp2040"])
    count = -(-size // 256)
    assert bytes(memory[0x10000000 + at] for at in range(256 * count)) == image.ljust(256 * count, b"\xff")
    assert [struct.unpack_from("<II", made, 512 * at + 20) for at in range(count)] == [
        (at, count) for at in range(count)
    ]
    assert len(made) == 512 * count and flashed(made, FAMILIES["rp2350"]) == {}


def test_the_boards_that_take_it_are_known_by_their_families() -> None:
    found = {name: target.uf2.family for name in names("target") if (target := read_target(name)).uf2 is not None}
    assert found == FAMILIES


def crc32_of_the_boot_rom(data: bytes) -> int:
    """The remainder of a division of polynomials, bit by bit (RP2040 datasheet, section 2.8.1.3.1)."""
    rest = int.from_bytes(data, "big") << 32
    rest ^= 0xFFFFFFFF << (8 * len(data))  # the register begins with ones
    for bit in range(8 * len(data) - 1, -1, -1):
        if rest >> (bit + 32) & 1:
            rest ^= 0x104C11DB7 << bit
    return rest


def test_the_checksum_is_what_standards_say_of_it() -> None:
    assert crc32_of_the_boot_rom(b"123456789") == 0x0376E6E7  # CRC-32/MPEG-2, reveng.sourceforge.io/crc-catalogue


@pytest.mark.parametrize("name", FAMILIES)
def test_the_firmware_begins_as_the_boot_loader_wants_it(gcc: None, name: str, tmp_path: Path) -> None:
    target = read_target(name).replace(emulator=None)
    make_bundle(tmp_path / "bundle", deployed_network("plain", "int8"), target)
    bundle = tmp_path / "bundle"
    image, memory = (
        (bundle / "firmware.bin").read_bytes(),
        flashed((bundle / "firmware.uf2").read_bytes(), FAMILIES[name]),
    )
    origin = target.flash.origin
    assert bytes(memory[origin + at] for at in range(len(image))) == image
    assert min(memory) == origin and max(memory) < origin + target.flash.size_bytes
    assert len(image) <= json.loads((bundle / "manifest.json").read_text())["flash_bytes"] < len(image) + 8
    vectors = 256 if name == "rp2040" else 0
    stack, reset = struct.unpack_from("<II", image, vectors)
    assert target.main_ram.origin < stack <= target.main_ram.origin + target.main_ram.size_bytes
    assert reset & 1 and origin + vectors + 64 <= reset < origin + len(image)
    readme = (bundle / "README.md").read_text()
    assert "Copy `firmware.uf2` onto it" in readme and target.uf2 is not None and target.uf2.drive in readme
    if name == "rp2040":
        assert struct.unpack_from("<I", image, 252)[0] == crc32_of_the_boot_rom(image[:252])
    if name == "rp2350":
        block = struct.pack("<5I", 0xFFFFDED3, 0x10210142, 0x000001FF, 0, 0xAB123579)
        assert image.find(block) % 4 == 0 and 64 <= image.find(block) < 4096


def test_other_boards_get_none(gcc: None, tmp_path: Path) -> None:
    target = read_target("stm32f405").replace(emulator=None)
    make_bundle(tmp_path / "bundle", deployed_network("plain", "int8"), target)
    assert not (tmp_path / "bundle" / "firmware.uf2").exists() and (tmp_path / "bundle" / "firmware.bin").exists()


def test_the_boot_stage_counts_and_a_limit_without_room_for_it_is_refused(gcc: None, tmp_path: Path) -> None:
    target, made = read_target("rp2040").replace(emulator=None), deployed_network("plain", "int8")
    report = CQemuBackend(optimise="speed").build(made, target, Constraints(), tmp_path).report
    bare = CQemuBackend(optimise="speed").build(made, target.replace(boot=None), Constraints(), tmp_path).report
    assert report.flash_bytes is not None and bare.flash_bytes == report.flash_bytes - 256
    limit = Constraints(flash_kb=(report.flash_bytes - 1) / 1024)
    assert not CQemuBackend(optimise="speed").build(made, target, limit, tmp_path).report.feasible
