"""What GNU ld says about a firmware, as numbers: regions, sections and overflows."""

import re

from automcu_ray.errors import ToolchainError

_OVERFLOW = re.compile(r"region [`'](\w+)' overflowed by (\d+) bytes?")  # "1 byte"
_REGION = re.compile(r"^\s*(\w+):\s+(\d+) (B|KB|MB|GB)\s+\d+ (?:B|KB|MB|GB)\s", re.MULTILINE)
_SECTION = re.compile(r"^(\.\S+)\s+(\d+)\s+\d+\s*$", re.MULTILINE)
_UNIT = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
_EXPECTED = ("overflowed by", "will not fit in region", "section VMA overlaps")


def overflows(stderr: str) -> dict[str, int]:
    """Return by how many bytes each region overflows; {} means that everything fits."""
    return {name: int(size) for name, size in _OVERFLOW.findall(stderr)}


def used_bytes(stdout: str) -> dict[str, int]:
    """Return the bytes used in each region, from `--print-memory-usage`.

    Raises:
        ToolchainError: no such table.
    """
    found = {name: int(size) * _UNIT[unit] for name, size, unit in _REGION.findall(stdout)}
    if not found:
        raise ToolchainError(f"the linker should print its memory usage, found {stdout[:200]!r}.")
    return found


def section_bytes(stdout: str) -> dict[str, int]:
    """Return the size of each section, from `size -A`."""
    return {name: int(size) for name, size in _SECTION.findall(stdout)}


def complaints(stderr: str) -> list[str]:
    """Return what the linker says beyond overflows: an undefined symbol, a missing file, a warning."""
    lines = (line.strip() for line in stderr.splitlines())
    return [line for line in lines if line and not any(text in line for text in _EXPECTED)]
