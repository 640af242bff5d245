"""ST's PowerShield LPM01A over its serial port: commands and samples in ASCII (ST UM2243, `help` of its firmware)."""

import re
import time
from typing import ClassVar

import numpy as np
import serial

from automcu_ray.core.errors import BoardError, ConfigError
from backends.instruments.base import Instrument, open_port
from backends.instruments.reader import Gatherer
from backends.instruments.trace import PowerTrace

BAUD = 3_686_400
RATES = {"1k": 1_000, "2k": 2_000, "5k": 5_000}  # without end, in ASCII; faster ones stop after a second
ANSWER_S, LINE_BYTES = 5.0, 512
_SAMPLE = re.compile(r"(\d{4})([+-]\d{2})")


class Lpm01a(Instrument):
    """An LPM01A that feeds the board and records its current, at most 5,000 samples a second: shorter spikes are lost.

    Not tried on a real one: the tests speak to a program that answers as its manual says.

    Args:
        port: its serial device.
        volts: of the supply, 1.8 to 3.3.
        rate: 1k, 2k or 5k samples a second.
    """

    name = "lpm01a"
    usb: ClassVar[tuple[tuple[int, int], ...]] = ((0x0483, 0x5740),)

    def __init__(self, *, port: str | None = None, volts: float = 3.3, rate: str = "5k") -> None:
        if rate not in RATES or not 1.8 <= volts <= 3.3:
            raise ConfigError(f"an LPM01A takes rate 1k, 2k or 5k and 1.8 to 3.3 V, found {rate[:9]!r}, {volts:g} V.")
        self.port, self.volts, self.rate = port, volts, rate
        self._device: serial.Serial | None = None
        self._gathered: Gatherer | None = None

    def start(self) -> None:
        if self._device is None:
            self._device = open_port(self.name, self.port, BAUD)
            self._order("htc")  # the host takes control
            for words in (f"volt {round(1000 * self.volts)}m", "acqtime inf", "trigsrc sw", "trigdelay 0",
                          "output current", "format ascii_dec", f"freq {self.rate}", "pwr on nostatus"):  # fmt: skip
                self._order(words)
        self._order("start")
        self._gathered = Gatherer(self._device)

    def stop(self) -> PowerTrace:
        if self._device is None or self._gathered is None:
            raise BoardError("an LPM01A should record before it is stopped.")
        gathered, self._gathered = self._gathered, None
        self._write(b"stop\r\n")
        time.sleep(0.1)  # what it has measured until then is on its way
        data = gathered.finish(self.name)
        return PowerTrace(parse(data), RATES[self.rate], self.volts, gathered.started_s)

    def close(self) -> None:
        if self._gathered is not None:
            self._gathered.end()
        if self._device is not None:
            try:
                self._write(b"pwr off\r\nhrc\r\n")
            finally:
                self._device.close()
                self._device = None

    def _order(self, words: str) -> None:
        """Give a command and wait for its `ack`."""
        assert self._device is not None
        self._write(f"{words}\r\n".encode())
        deadline_s, line = time.monotonic() + ANSWER_S, ""
        while time.monotonic() < deadline_s:
            line = self._device.read_until(b"\n", LINE_BYTES).decode("ascii", "replace").replace("PowerShield >", "")
            if line.split()[:1] == ["ack"]:
                return
            if line.split()[:1] == ["error"]:
                break
        raise BoardError(f"an LPM01A should acknowledge {words!r}, found {line.strip()[:80]!r}.")

    def _write(self, data: bytes) -> None:
        assert self._device is not None
        try:
            self._device.write(data)
        except (serial.SerialException, OSError) as error:
            raise BoardError(f"instrument {self.name!r}: its port broke: {error}") from error


def parse(data: bytes) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return the samples in ampere: `6409-07` is 6409e-7; lines of other kinds (time stamps, events) are passed over.

    Raises:
        BoardError: no sample came, or the instrument says that it lost some.
    """
    values, lines = [], data.decode("ascii", "replace").splitlines()
    for line in lines:
        word = line.replace("PowerShield >", "").strip()
        if "overflow" in word.lower() or "overrun" in word.lower():
            raise BoardError(f"an LPM01A should keep up, and said {word[:80]!r}: ask for a lower rate.")
        if found := _SAMPLE.fullmatch(word):
            values.append(float(f"{found[1]}e{found[2]}"))
    if not values:
        raise BoardError(f"an LPM01A should send samples, found {data[:80]!r}.")
    return np.array(values)
