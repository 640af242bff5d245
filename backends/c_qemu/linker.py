"""What GNU ld is told about a firmware, and what it says, as numbers: regions, sections and overflows."""

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import FlashUsage, RamUsage, Rung, Violation, over_limit
from automcu_ray.problem.target import Boot, McuTarget
from backends.c_qemu.cgen import NetworkCode
from backends.c_qemu.planner import largest_at_peak

_OVERFLOW = re.compile(r"region [`'](\w+)' overflowed by (\d{1,12}) bytes?")  # "1 byte"
_REGION = re.compile(r"^\s*(\w+):\s+(\d{1,12}) (B|KB|MB|GB)\s+\d+ (?:B|KB|MB|GB)\s", re.MULTILINE)
_SECTION = re.compile(r"^(\.\S+)\s+(\d{1,12})\s+\d+\s*$", re.MULTILINE)
_UNIT = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
_BEFORE_VECTORS = {"rp2040": 256}  # bytes of a boot stage that comes first
_EXPECTED = ("overflowed by", "will not fit in region", "section VMA overlaps")


@dataclass(frozen=True)
class Layout:
    """Where a firmware lies, and the room that its linker script reserves, in bytes.

    `start_origin` is the address of the vector table, `stream` says that raw samples can be fed, `boot` is what a boot
    ROM wants to find.
    """

    flash_origin: int
    flash_bytes: int
    ram_origin: int
    ram_bytes: int
    start_origin: int
    input_bytes: int
    output_bytes: int
    stack_bytes: int
    stream: bool = False
    boot: Boot | None = None

    def script(self, template: Path) -> str:
        """Return the linker script: a template whose `@NAMES@` are the fields above."""
        text = template.read_text()
        for name, value in dataclasses.asdict(self).items():
            text = text.replace(f"@{name.upper()}@", f"{value:#x}" if name.endswith("origin") else str(value))
        return text


def start_origin(target: McuTarget) -> int:
    """Return the address of a target's vector table: its Flash begins by it, or by a boot stage."""
    return target.flash.origin + _BEFORE_VECTORS.get(target.boot or "", 0)


def overflows(stderr: str) -> dict[str, int]:
    """Return by how many bytes each region overflows; {} means that everything fits."""
    return {name: int(size) for name, size in _OVERFLOW.findall(stderr)}


def used_bytes(stdout: str) -> dict[str, int]:
    """Return the bytes used in each region, from `--print-memory-usage`.

    Raises:
        ToolchainError: no such table, or one without RAM and FLASH.
    """
    found = {name: int(size) * _UNIT[unit] for name, size, unit in _REGION.findall(stdout)}
    if not {"RAM", "FLASH"} <= found.keys():
        raise ToolchainError(f"the linker should print its memory usage, found {stdout[:200]!r}.")
    return found


def section_bytes(stdout: str) -> dict[str, int]:
    """Return the size of each section, from `size -A`.

    Raises:
        ToolchainError: a section is missing that every firmware has.
    """
    found = {name: int(size) for name, size in _SECTION.findall(stdout)}
    if not {".net_code", ".io", ".stack"} <= found.keys():
        raise ToolchainError(f"size should print the firmware's sections, found {stdout[:200]!r}.")
    return found


def complaints(stderr: str) -> list[str]:
    """Return what the linker says beyond overflows: an undefined symbol, a missing file, a warning."""
    lines = (line.strip() for line in stderr.splitlines())
    return [line for line in lines if line and not any(text in line for text in _EXPECTED)]


def usage(used: dict[str, int], sections: dict[str, int]) -> tuple[RamUsage, FlashUsage]:
    """Return the parts of RAM and Flash; the rest of a region's total is harness, stream, C library and padding.

    Args:
        used: bytes used in the regions RAM and FLASH, as the linker says.
        sections: bytes of the sections of `firmware/link.ld`; no arena or weights is none of them.

    Raises:
        ToolchainError: the parts are more than the whole.
    """
    arena, io, stack = (sections.get(name, 0) for name in (".arena", ".io", ".stack"))
    code, weights = (sections.get(name, 0) for name in (".net_code", ".weights"))
    ram, flash = used["RAM"], used["FLASH"]
    rest, runtime = ram - arena - io - stack, flash - code - weights
    if rest < 0 or runtime < 0:
        raise ToolchainError(f"linker and size contradict each other: used {used}, sections {sections}.")
    of_ram = RamUsage(arena_bytes=arena, io_bytes=io, stack_bytes=stack, data_bss_bytes=rest, total_bytes=ram)
    of_flash = FlashUsage(code_bytes=code, weights_bytes=weights, runtime_bytes=runtime, total_bytes=flash)
    return of_ram, of_flash


def violation(region: str, over: int, limit: int, code: NetworkCode) -> Violation:
    """Return the violation of a region, with the node, bytes and kind of what to shrink first."""
    where, size, what = "", 0, "the output"
    if region == "FLASH":
        (where, size), what = max(code.weights.items(), key=lambda item: item[1], default=("", 0)), "the weights"
    elif buffer := largest_at_peak(code.buffers):
        where, size = code.made_by[buffer.name], buffer.size_bytes
        what = "the scratch memory" if buffer.is_scratch else what
    part = f"; the largest part is {what} of {where or 'no layer'} ({size} bytes)."
    return over_limit(Rung.LINK, "ram" if region == "RAM" else "flash", where, limit + over, limit, part=part)
