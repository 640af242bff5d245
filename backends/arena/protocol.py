"""The host's side of the arena's serial protocol, firmware/main.c: nonces, counters, time stamps and CRCs checked."""

import re
import secrets
import struct
import zlib
from dataclasses import dataclass

from automcu_ray.core.errors import BoardError
from automcu_ray.problem.arena import WAKE_BYTES
from backends.boards.base import Port

MAGIC = b"ARN:"
_LINE_BYTES = 1 << 16
_BANNER = re.compile(r"ARENA 1 ([0-9a-f]{8}) ([0-9a-f]{8}) ([0-9a-f]{16})")
_OUT = re.compile(r"OUT ([0-9a-f]{8}) ([0-9a-f]{8}) ([0-9a-f]*) ([0-9a-f]{16}) ([0-9a-f]{16}) ([0-9a-f]{8})")


class FirmwareFault(Exception):
    """The artifact's code did what the guard forbids, or crashed."""


class Garbled(BoardError):
    """A line was damaged on its way: it can be asked for again."""


@dataclass(frozen=True)
class Answer:
    """One inference: output, ticks that it took, ticks since the boot."""

    output: bytes
    ticks: int
    stamp: int


@dataclass
class Session:
    """A talk with one booted firmware; `log` is what it said, for people and for the agent.

    Up to `preamble_lines` lines may come before the banner.
    """

    port: Port
    input_bytes: int
    output_bytes: int
    boot_delay_ticks: int
    log: list[str]
    runs: int = 0
    stamp: int = 0
    preamble_lines: int = 0

    def greet(self) -> None:
        """Wait for the banner.

        Raises:
            BoardError: silence, rubbish, other sizes, or no boot delay.
        """
        line = self._line()
        for _ in range(self.preamble_lines):  # of a chip's ROM, before the firmware's first
            if _BANNER.fullmatch(line):
                break
            line = self._line()
        found = _BANNER.fullmatch(line)
        if not found:
            raise BoardError(f"the firmware should say its banner, found {line[:80]!r}.")
        sizes = int(found[1], 16), int(found[2], 16)
        if sizes != (self.input_bytes, self.output_bytes):
            raise BoardError(
                f"the firmware should take {self.input_bytes} and give {self.output_bytes} bytes: {sizes}."
            )
        if (delay := int(found[3], 16)) < self.boot_delay_ticks:
            raise BoardError(f"the firmware should wait {self.boot_delay_ticks} ticks when it boots, found {delay}.")

    def wake(self) -> None:
        """Send bytes that are no frame: a firmware that sleeps may lose the first ones."""
        self.port.write(b"\n" * WAKE_BYTES)

    def ask(self, payload: bytes) -> Answer:
        """Send one input under a fresh nonce; return the answer that belongs to it.

        Raises:
            FirmwareFault: the artifact's code ended in the fault handler.
            BoardError: silence, or an answer that is damaged, another's, out of order or out of time.
        """
        nonce = secrets.randbits(32)
        frame = struct.pack("<II", nonce, len(payload)) + payload
        self.port.write(MAGIC + frame + struct.pack("<I", zlib.crc32(frame)))
        line = self._line()
        if line.startswith("FAULT"):
            raise FirmwareFault(line)
        if line.startswith("BAD"):
            raise Garbled(f"the board received a damaged input: {line[:80]!r}.")
        found = _OUT.fullmatch(line)
        if not found or zlib.crc32(line[: found.start(6) - 1].encode()) != int(found[6], 16):
            raise Garbled(f"the board should answer OUT with a sound CRC, found {line[:80]!r}.")
        answer = Answer(bytes.fromhex(found[3]), int(found[4], 16), int(found[5], 16))
        self._check(answer, nonce, int(found[1], 16), int(found[2], 16))
        return answer

    def _check(self, answer: Answer, nonce: int, said_nonce: int, runs: int) -> None:
        if said_nonce != nonce:
            raise BoardError(f"the answer should carry the nonce {nonce:08x}, found {said_nonce:08x}: it is not ours.")
        if runs != self.runs + 1:
            raise BoardError(f"the workload counter should be {self.runs + 1}, found {runs}.")
        if len(answer.output) != self.output_bytes:
            raise BoardError(f"an output has {self.output_bytes} bytes, found {len(answer.output)}.")
        if answer.ticks == 0 or answer.stamp < self.stamp + answer.ticks:
            raise BoardError(f"time stamps should grow by what a run takes: {self.stamp} + {answer.ticks}, found "
                             f"{answer.stamp}.")  # fmt: skip
        self.runs, self.stamp = runs, answer.stamp

    def _line(self) -> str:
        raw = bytes(self.port.read_until(b"\n", _LINE_BYTES))
        line = raw.decode("ascii", errors="replace").strip()
        self.log.append(line)
        if not raw.endswith(b"\n"):
            raise BoardError(f"the board should answer in time, found {line[:80]!r}.")
        return line
