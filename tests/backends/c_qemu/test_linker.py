from pathlib import Path

import pytest

from backends.c_qemu import linker
from backends.c_qemu.harness import FIRMWARE
from backends.c_qemu.linker import Layout

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


UNDEFINED = "main.c:(.text+0x8): undefined reference to `net'"


@pytest.mark.parametrize(
    ("said", "overflows", "complaints"),
    [
        (STDERR, {"FLASH": 26392, "RAM": 12312}, []),
        ("ld: region `RAM' overflowed by 1 byte\n", {"RAM": 1}, []),
        (UNDEFINED, {}, [UNDEFINED]),
        (STDERR + UNDEFINED, {"FLASH": 26392, "RAM": 12312}, [UNDEFINED]),
    ],
)
def test_overflows_are_read_and_the_rest_is_a_complaint(said: str, overflows: object, complaints: object) -> None:
    assert (linker.overflows(said), linker.complaints(said)) == (overflows, complaints)


def test_used_bytes_come_in_every_unit() -> None:
    assert linker.used_bytes(TABLE) == {"FLASH": 91928, "RAM": 32768}


def test_sections_are_read_without_the_table_around_them() -> None:
    rows = ".net_code 700 16\n.arena   28672   536870912\n.io  3086   536899588\n.stack 1024 8\n"
    found = linker.section_bytes(f"net.elf  :\nsection   size        addr\n{rows}Total 140478\n")
    assert found == {".net_code": 700, ".arena": 28672, ".io": 3086, ".stack": 1024}


def test_a_layout_fills_every_name_of_the_template(tmp_path: Path) -> None:
    template = tmp_path / "x.ld"
    template.write_text(
        "@FLASH_ORIGIN@ @FLASH_BYTES@ @RAM_ORIGIN@ @RAM_BYTES@ @START_ORIGIN@ @INPUT_BYTES@ @STACK_BYTES@"
    )
    layout = Layout(0x8000000, 3000, 0x20000000, 2000, 0, input_bytes=5, output_bytes=7, stack_bytes=1024)
    assert layout.script(template) == "0x8000000 3000 0x20000000 2000 0x0 5 1024"
    assert "@" not in layout.script(FIRMWARE / "link.ld")
