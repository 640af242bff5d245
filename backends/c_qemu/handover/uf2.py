"""A firmware as UF2: what one copies onto the drive that a board shows over USB, github.com/microsoft/uf2."""

import struct

PAYLOAD_BYTES = 256  # of a block of 512: what every boot loader takes
_FAMILY_PRESENT = 0x2000
_HEADER, _START, _END = "<8I", (0x0A324655, 0x9E5D5157), 0x0AB16F30


def uf2(image: bytes, origin: int, family: int) -> bytes:
    """Return an image of the Flash from an address on in blocks of 512 bytes; the last one is filled up with 0xFF.

    Args:
        image: what firmware.bin holds.
        origin: where it begins; a multiple of PAYLOAD_BYTES.
        family: for whose boot loader it is.
    """
    count = -(-len(image) // PAYLOAD_BYTES)
    blocks = []
    for number in range(count):
        start = number * PAYLOAD_BYTES
        payload = image[start : start + PAYLOAD_BYTES].ljust(PAYLOAD_BYTES, b"\xff")
        about = (*_START, _FAMILY_PRESENT, origin + start, PAYLOAD_BYTES, number, count, family)
        blocks.append(struct.pack(_HEADER, *about) + payload.ljust(476, b"\xff") + struct.pack("<I", _END))
    return b"".join(blocks)
