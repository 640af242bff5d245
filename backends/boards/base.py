"""A board runs a firmware on inputs and answers with outputs; the serial protocol is firmware/main.c's."""

import re
import struct
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import serial

from automcu_ray.core.errors import BoardError
from automcu_ray.problem.target import McuTarget

MAGIC, RAW = b"NET:", b"RAW:"
_LINE_BYTES = 1 << 16  # no line is longer: an output has two digits a byte
_DIGITS = 16  # of a figure: 64 bits


@dataclass(frozen=True)
class BoardRun:
    """What a board answered: outputs (N, classes), figures of one inference, wall seconds of the whole run.

    `instructions` is None where the board cannot count them; figures are the largest over the images.
    """

    outputs: npt.NDArray[Any]
    instructions: int | None
    stack_used_bytes: int
    seconds: float


@dataclass(frozen=True)
class Answer:
    """One line of the firmware, decoded; `ticks` is 0 where the chip has nothing that counts them."""

    output: bytes
    ticks: int
    stack_bytes: int


class Port(Protocol):
    """The part of pyserial's port that the protocol needs."""

    def write(self, data: bytes, /) -> int | None: ...

    def read_until(self, expected: bytes, size: int, /) -> bytes: ...


class Board(ABC):
    """Where firmware runs. A subclass opens the port and knows what a tick is; the talk is the same for all.

    `measures` are the figures that a run brings beside the outputs.
    """

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]] = ()
    measures: ClassVar[frozenset[str]] = frozenset({"stack"})

    def __init__(self, *, timeout_s: float = 120) -> None:
        self.timeout_s = timeout_s

    @abstractmethod
    def connect(self, elf: Path, target: McuTarget) -> AbstractContextManager[Port]:
        """Start the firmware and open its serial port, whose reads end after `timeout_s`; undo both at exit.

        Raises:
            ConfigError: this kind of board cannot run that target.
        """

    @abstractmethod
    def instructions(self, ticks: int, target: McuTarget) -> int | None:
        """Return the instructions that took so many SysTick ticks, or None where nobody can say."""

    def clock_hz(self, target: McuTarget) -> int | None:
        """Return the rate of SysTick's ticks, where these are time; None where they are not, or nobody knows it."""
        return None

    def version(self) -> str:
        """Return the version of what runs the firmware; "" where it has none."""
        return ""

    def label(self, target: McuTarget) -> str:
        """Return what a report calls the place where a target's firmware ran."""
        return self.name

    def run(
        self,
        elf: Path,
        target: McuTarget,
        inputs: npt.NDArray[Any],
        *,
        output_dtype: npt.DTypeLike,
        output_count: int,
    ) -> BoardRun:
        """Return the outputs of a firmware for encoded inputs (N, C, H, W).

        Raises:
            BoardError: it is silent for `timeout_s`, faults, or answers rubbish.
            ConfigError: this kind of board cannot run that target.
        """
        if len(inputs) == 0:
            raise BoardError("a run needs at least one input, found none.")
        payloads = [image.tobytes() for image in inputs]
        return self._talk(elf, target, MAGIC, payloads, inputs[0].nbytes, np.dtype(output_dtype), output_count)

    def stream(
        self, elf: Path, target: McuTarget, parts: Sequence[npt.NDArray[np.int16]], *, input_bytes: int, outputs: int
    ) -> BoardRun:
        """Return the outputs (N, `outputs`) int8 of a firmware that is fed parts of a recording (samples, channels).

        Each answer is to the window that ends with the part; the first one must fill a window. Instructions are the
        front end's alone, for the part that took most; the first one counts only where it is the only one.

        Raises:
            BoardError, ConfigError: as for `run`.
        """
        payloads = [part.astype("<i2").tobytes() for part in parts]
        return self._talk(elf, target, RAW, payloads, input_bytes, np.dtype(np.int8), outputs)

    def _talk(
        self,
        elf: Path,
        target: McuTarget,
        magic: bytes,
        payloads: Sequence[bytes],
        input_bytes: int,
        dtype: np.dtype[Any],
        output_count: int,
    ) -> BoardRun:
        start = time.monotonic()
        output_bytes = output_count * dtype.itemsize
        with self.connect(elf, target) as port:
            try:
                greet(port, input_bytes, output_bytes)
                answers = [ask(port, payload, output_bytes, magic) for payload in payloads]
            except (serial.SerialException, OSError) as error:
                raise BoardError(f"the serial port broke: {error}") from error
        outputs = np.frombuffer(b"".join(answer.output for answer in answers), dtype.newbyteorder("<"))
        counted = answers[1:] if magic == RAW and len(answers) > 1 else answers
        ticks = max(answer.ticks for answer in counted)
        return BoardRun(
            outputs.reshape(len(payloads), output_count),
            self.instructions(ticks, target) if ticks else None,
            max(answer.stack_bytes for answer in answers),
            time.monotonic() - start,
        )


def greet(port: Port, input_bytes: int, output_bytes: int) -> None:
    """Wait for the firmware and check that it holds the network the host thinks it does.

    Raises:
        BoardError: silence, rubbish, or other sizes.
    """
    sizes = [int(_hex(word, _DIGITS), 16) for word in _words(port, "READY", 2)]
    if sizes != [input_bytes, output_bytes]:
        raise BoardError(f"the firmware should take {input_bytes} and give {output_bytes} bytes, found {sizes}.")


def ask(port: Port, payload: bytes, output_bytes: int, magic: bytes = MAGIC) -> Answer:
    """Send one input and return the answer.

    Raises:
        BoardError: silence, rubbish, a fault, or a CRC that is missing or does not agree.
    """
    port.write(magic + struct.pack("<II", len(payload), sum(payload) & 0xFFFFFFFF) + payload)
    output, ticks, stack, crc = _words(port, "OUT", 4)
    if len(output) != 2 * output_bytes:
        raise BoardError(f"the board should answer {output_bytes} bytes of output, found {len(output) // 2}.")
    answer = Answer(bytes.fromhex(_hex(output)), int(_hex(ticks, _DIGITS), 16), int(_hex(stack, 8), 16))
    if (found := crc_of(payload, answer)) != int(_hex(crc, 8), 16):
        raise BoardError(f"the answer should carry the CRC {found:08x}, found {crc}: it or its input was damaged.")
    return answer


def crc_of(payload: bytes, answer: Answer) -> int:
    """Return the CRC-32 that the firmware sends with an answer: of the input, the output, and both figures."""
    return zlib.crc32(payload + answer.output + struct.pack("<QI", answer.ticks, answer.stack_bytes))


def _words(port: Port, command: str, count: int) -> list[str]:
    raw = bytes(port.read_until(b"\n", _LINE_BYTES))
    line = raw.decode("ascii", errors="replace").strip()
    if not raw.endswith(b"\n"):
        raise BoardError(f"the board should answer {command} in time, found {line[:80]!r}.")
    if line.startswith("FAULT"):
        raise BoardError(f"the firmware faulted ({line}): a crash, or a stack larger than its reserve.")
    head, _, rest = line.partition(" ")
    words = rest.split()
    if head == command == "OUT" and len(words) == 3:
        raise BoardError("the answer carries no CRC: the firmware is of an earlier version; build it again.")
    if head != command or len(words) != count:
        raise BoardError(f"the board should answer {command} and {count} words, found {line[:80]!r}.")
    return words


def _hex(word: str, digits: int = _LINE_BYTES) -> str:
    """Return a word that is hexadecimal digits, at most so many, and no sign or `_` that Python would read."""
    if not re.fullmatch("[0-9a-fA-F]+", word) or len(word) > digits:
        raise BoardError(f"the board should answer a hexadecimal number, found {word[:40]!r}.")
    return word
