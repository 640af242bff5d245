import pytest

from automcu_ray.errors import ToolchainError
from backends import linker

STDERR = """\
/usr/bin/ld: net.elf section `.weights' will not fit in region `FLASH'
/usr/bin/ld: region `FLASH' overflowed by 26392 bytes
/usr/bin/ld: region `RAM' overflowed by 12312 bytes
"""
TABLE = """\
Memory region         Used Size  Region Size  %age Used
           FLASH:       91928 B        64 KB    140.27%
             RAM:         32 KB        20 KB    160.00%
"""


def test_overflows_of_both_regions_are_read() -> None:
    assert linker.overflows(STDERR) == {"FLASH": 26392, "RAM": 12312}
    assert linker.complaints(STDERR) == []


def test_an_overflow_by_one_byte_is_an_overflow() -> None:
    assert linker.overflows("ld: region `RAM' overflowed by 1 byte\n") == {"RAM": 1}


def test_an_undefined_symbol_is_no_overflow() -> None:
    line = "main.c:(.text+0x8): undefined reference to `net'"
    assert linker.overflows(line) == {}
    assert linker.complaints(STDERR + line) == [line]


def test_used_bytes_come_in_every_unit() -> None:
    assert linker.used_bytes(TABLE) == {"FLASH": 91928, "RAM": 32768}


def test_a_missing_table_is_a_toolchain_error() -> None:
    with pytest.raises(ToolchainError, match="memory usage"):
        linker.used_bytes("ld: warning")


def test_sections_are_read_without_the_table_around_them() -> None:
    text = "net.elf  :\nsection   size        addr\n.arena   28672   536870912\n.io  3086   536899588\nTotal 140478\n"
    assert linker.section_bytes(text) == {".arena": 28672, ".io": 3086}
