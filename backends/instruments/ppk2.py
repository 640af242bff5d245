"""Nordic's Power Profiler Kit II by its serial protocol: 100,000 samples of current a second, eight digital inputs.

A driver of ours. Opcodes, the layout of a sample and the calibration's formula are those of Nordic's own application
(pc-nrfconnect-ppk); no code of it, nor of the GPL package ppk2-api, is used.
"""

import re
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import serial

from automcu_ray.core.errors import BoardError, ConfigError
from backends.instruments.base import Instrument, open_port
from backends.instruments.reader import Gatherer
from backends.instruments.trace import PowerTrace

RATE_HZ, BAUD = 100_000, 115_200  # the port is USB's: its baud rate says nothing
START, STOP, POWER, REGULATOR, MODE, METADATA = 0x06, 0x07, 0x0C, 0x0D, 0x11, 0x19
AMPERE_METER, SOURCE_METER = 1, 2
LEAST_MV, MOST_MV = 800, 5000
RANGES, COUNTS = 5, 64
ADC_VOLTS = 1.8 / 163840
METADATA_S, METADATA_BYTES = 5.0, 4096
_DEFAULTS = {"R": 0.0, "GS": 1.0, "GI": 1.0, "O": 0.0, "S": 0.0, "I": 0.0, "UG": 1.0}
_LINE = re.compile(r"(R|GS|GI|O|S|I|UG)([0-4]):\s*(-?\d+(?:\.\d+)?(?:e-?\d+)?)", re.IGNORECASE)


@dataclass(frozen=True)
class Calibration:
    """The factory's constants of one device, by name; each has a value a measuring range."""

    values: dict[str, npt.NDArray[np.float64]]

    @classmethod
    def parse(cls, text: str) -> "Calibration":
        """Return the constants that a device tells about itself.

        Raises:
            BoardError: a resistance is missing: without it no current can be told.
        """
        values = {name: np.full(RANGES, default) for name, default in _DEFAULTS.items()}
        for line in text.splitlines():
            if found := _LINE.fullmatch(line.strip()):
                values[found[1].upper()][int(found[2])] = float(found[3])
        if not (values["R"] > 0).all():
            raise BoardError(f"a PPK2 should tell its resistances R0 to R4, found {text[:100]!r}.")
        return cls(values)

    def amperes(self, words: npt.NDArray[np.uint32], volts: float) -> npt.NDArray[np.float64]:
        """Return the current of each sample; bits 0 to 13 are the converter's value, 14 to 16 the range.

        No sample is smoothed: the few after a change of range, which Nordic's application averages, count as they are.

        Raises:
            BoardError: a range that the device does not have.
        """
        ranges = (words >> 14) & 7
        if len(words) and int(ranges.max()) >= RANGES:
            raise BoardError(f"a PPK2 has ranges 0 to 4, found {int(ranges.max())}: the stream is out of step.")
        of = {name: values[ranges] for name, values in self.values.items()}
        bare = ((words & 0x3FFF) * 4.0 - of["O"]) * (ADC_VOLTS / of["R"])
        found: npt.NDArray[np.float64] = of["UG"] * (bare * (of["GS"] * bare + of["GI"]) + (of["S"] * volts + of["I"]))
        return found


def decode(data: bytes, calibration: Calibration, volts: float, started_s: float = 0.0) -> PowerTrace:
    """Return the trace of a recording's bytes: little-endian words, a counter in bits 18 to 23, inputs from 24.

    Raises:
        BoardError: samples are missing: the counter skips, or nothing came.
    """
    words = np.frombuffer(data[: len(data) // 4 * 4], "<u4").astype(np.uint32)
    if not len(words):
        raise BoardError("a PPK2 should send samples, found none: is its port that of another PPK2's second half?")
    steps = np.diff((words >> 18).astype(np.int64) & (COUNTS - 1)) % COUNTS
    if skips := int((steps != 1).sum()):
        raise BoardError(
            f"a PPK2 should count its samples one by one, found {skips} gaps: energy and peak would be wrong."
        )
    logic = (words >> 24).astype(np.uint8)
    return PowerTrace(calibration.amperes(words, volts), RATE_HZ, volts, started_s, logic)


class Ppk2(Instrument):
    """A PPK2 on a serial port: it feeds the board (source meter) or sits in its supply (ampere meter).

    Not tried on a real one: the tests speak to a program that speaks the protocol.

    Args:
        port: its serial device.
        volts: of the supply, 0.8 to 5; as ampere meter, what the board's own supply has.
        source: whether it feeds the board.
    """

    name = "ppk2"
    usb: ClassVar[tuple[tuple[int, int], ...]] = ((0x1915, 0xC00A),)

    def __init__(self, *, port: str | None = None, volts: float = 3.3, source: bool = True) -> None:
        if not LEAST_MV <= round(1000 * volts) <= MOST_MV:
            raise ConfigError(f"a PPK2 gives 0.8 to 5 V, found volts={volts:g}.")
        self.port, self.volts, self.source = port, volts, source
        self._device: serial.Serial | None = None
        self._calibration: Calibration | None = None
        self._gathered: Gatherer | None = None

    def start(self) -> None:
        device = self._device or self._open()
        self._send(device, START)
        self._gathered = Gatherer(device)

    def stop(self) -> PowerTrace:
        if self._device is None or self._calibration is None or self._gathered is None:
            raise BoardError("a PPK2 should record before it is stopped.")
        data, self._gathered = self._gathered.finish(self.name), self._gathered
        started_s, self._gathered = self._gathered.started_s, None
        self._send(self._device, STOP)
        return decode(data, self._calibration, self.volts, started_s)

    def close(self) -> None:
        if self._gathered is not None:
            self._gathered.end()
        if self._device is not None:
            try:
                self._send(self._device, POWER, 0)
            finally:
                self._device.close()
                self._device = None

    def _open(self) -> serial.Serial:
        device = self._device = open_port(self.name, self.port, BAUD)
        self._send(device, STOP)
        time.sleep(0.05)
        device.reset_input_buffer()  # of a recording that somebody left running
        self._send(device, METADATA)
        text, deadline_s = b"", time.monotonic() + METADATA_S
        while b"END" not in text:
            if time.monotonic() > deadline_s or len(text) > METADATA_BYTES:
                raise BoardError(f"a PPK2 should tell its calibration and END, found {text[-80:]!r}.")
            text += device.read(max(1, device.in_waiting))
        self._calibration = Calibration.parse(text.decode("ascii", "replace"))
        above = round(1000 * self.volts) - LEAST_MV + 32  # (3, 32) is 800 mV, and a step 1 mV
        self._send(device, REGULATOR, 3 + above // 256, above % 256)
        self._send(device, MODE, SOURCE_METER if self.source else AMPERE_METER)
        self._send(device, POWER, 1)
        return device

    def _send(self, device: serial.Serial, *words: int) -> None:
        try:
            device.write(bytes(words))
        except (serial.SerialException, OSError) as error:
            raise BoardError(f"instrument {self.name!r}: its port broke: {error}") from error
