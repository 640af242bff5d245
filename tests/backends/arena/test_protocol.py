"""The host believes a line only if it is whole, its own, the next one, and in time."""

import struct
import zlib
from collections.abc import Callable

import pytest

from automcu_ray.core.errors import BoardError
from backends.arena.protocol import MAGIC, FirmwareFault, Garbled, Session

BANNER = b"ARENA 1 00000002 00000001 0000000000001000\n"
Answering = Callable[[int, int], str]


class Firmware:
    """A port behind which firmware answers as `answer(nonce, runs)` says."""

    def __init__(self, answer: Answering) -> None:
        self.answer, self.said, self.runs = answer, [BANNER], 0

    def write(self, data: bytes, /) -> int:
        nonce, size = struct.unpack("<II", data[4:12])
        assert data.startswith(MAGIC) and size == 2 and len(data) == 18
        assert zlib.crc32(data[4:-4]) == struct.unpack("<I", data[-4:])[0]
        self.runs += 1
        self.said.append(self.answer(nonce, self.runs).encode())
        return len(data)

    def read_until(self, expected: bytes, size: int, /) -> bytes:
        return self.said.pop(0)


def out(nonce: int, runs: int, output: str = "07", ticks: int = 10, stamp: int | None = None) -> str:
    stamp = 100 * runs if stamp is None else stamp
    text = f"OUT {nonce:08x} {runs:08x} {output} {ticks:016x} {stamp:016x}"
    return f"{text} {zlib.crc32(text.encode()):08x}\n"


def session(answer: Answering) -> Session:
    made = Session(Firmware(answer), 2, 1, 0x1000, [])
    made.greet()
    return made


def test_answers_are_taken_in_their_order() -> None:
    talk = session(out)
    assert [talk.ask(b"ab").output for _ in range(3)] == 3 * [b"\x07"]
    assert (talk.runs, talk.stamp) == (3, 300) and talk.log[0] == BANNER.decode().strip()


@pytest.mark.parametrize(
    ("what", "answer", "why"),
    [
        ("a replayed line", lambda nonce, runs: out(nonce ^ 1, runs), "not ours"),
        ("a run left out", lambda nonce, runs: out(nonce, runs - 1), "workload counter"),
        ("a run repeated", lambda nonce, runs: out(nonce, runs + 1), "workload counter"),
        ("no time at all", lambda nonce, runs: out(nonce, runs, ticks=0), "time stamps"),
        ("more time than went by", lambda nonce, runs: out(nonce, runs, ticks=101), "time stamps"),
        ("a longer output", lambda nonce, runs: out(nonce, runs, output="0707"), "1 bytes"),
    ],
)
def test_a_sound_line_that_cannot_be_true_is_refused(what: str, answer: Answering, why: str) -> None:
    with pytest.raises(BoardError, match=why):
        session(answer).ask(b"ab")


@pytest.mark.parametrize("line", ["OUT 1\n", "behaviour: PASS\n", "\n", out(1, 1).replace("07", "08", 1), "BAD crc\n"])
def test_a_damaged_line_is_garbled_and_can_be_asked_for_again(line: str) -> None:
    with pytest.raises(Garbled):
        session(lambda nonce, runs: line).ask(b"ab")


def test_a_fault_is_the_firmwares_and_silence_is_told() -> None:
    with pytest.raises(FirmwareFault, match="00000082"):
        session(lambda nonce, runs: "FAULT 00000082 e000e018 08004010\n").ask(b"ab")
    with pytest.raises(BoardError, match="in time"):
        session(lambda nonce, runs: "OUT").ask(b"ab")


@pytest.mark.parametrize(
    "banner", ["ARENA 1 00000003 00000001 0000000000001000\n", "READY\n", BANNER.decode().replace("1000", "0fff")]
)
def test_other_sizes_another_firmware_and_no_boot_delay_are_told(banner: str) -> None:
    port = Firmware(out)
    port.said = [banner.encode()]
    with pytest.raises(BoardError):
        Session(port, 2, 1, 0x1000, []).greet()
