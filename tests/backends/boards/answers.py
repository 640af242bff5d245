"""What a board says, as the comment above firmware/main.c has it."""

import struct
import zlib


def out(payload: bytes, output: bytes, ticks: int = 0, stack: int = 100) -> bytes:
    """Return the line that answers an input."""
    crc = zlib.crc32(payload + output + struct.pack("<QI", ticks, stack))
    return f"OUT {output.hex()} {ticks:016x} {stack:08x} {crc:08x}\n".encode()
