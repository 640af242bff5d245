"""Temperatures over a serial port: a chip's own sensor, or an infrared camera (MLX90640) behind a bridge."""

import math
import re
import time

import numpy as np
import serial

from automcu_ray.core.errors import BoardError, ConfigError
from backends.instruments.base import Instrument, open_port
from backends.instruments.reader import Gatherer
from backends.instruments.trace import KELVIN, ThermalTrace

_NUMBER = re.compile(r"[+-]?\d{1,3}(?:\.\d+)?")
LEAST_C, MOST_C = -60.0, 400.0


class Thermometer(Instrument):
    """A device that prints a line a reading: `T` and one temperature in Celsius, or all pixels of a frame.

    Of a frame the hottest pixel counts. Ambient is what `ambient_c` says; else the lowest of the first reading.
    Not tried on a real sensor.

    Args:
        port: its serial device.
        baud: of it.
        ambient_c: the temperature around it.
    """

    name = "thermometer"
    quantity = "temperature"

    def __init__(self, *, port: str | None = None, baud: int = 115200, ambient_c: float | None = None) -> None:
        if ambient_c is not None and not LEAST_C <= ambient_c <= MOST_C:
            raise ConfigError(f"ambient_c should be a temperature in Celsius, found {ambient_c:g}.")
        self.port, self.baud, self.ambient_c = port, baud, ambient_c
        self._device: serial.Serial | None = None
        self._gathered: Gatherer | None = None

    def start(self) -> None:
        self._device = self._device or open_port(self.name, self.port, self.baud)
        self._device.reset_input_buffer()
        self._gathered = Gatherer(self._device)

    def stop(self) -> ThermalTrace:
        if self._gathered is None:
            raise BoardError("a thermometer should record before it is stopped.")
        gathered, self._gathered = self._gathered, None
        data = gathered.finish(self.name)
        return parse(data, time.monotonic() - gathered.started_s, self.ambient_c)

    def close(self) -> None:
        if self._gathered is not None:
            self._gathered.end()
        if self._device is not None:
            self._device.close()
            self._device = None


def parse(data: bytes, seconds: float, ambient_c: float | None) -> ThermalTrace:
    """Return the trace of what was printed; the first line, which may have begun before, and a last half one go.

    Raises:
        BoardError: no reading, or one that is no temperature: a thermometer that fails must not look cool.
    """
    readings = []
    for line in data.decode("ascii", "replace").split("\n")[1:-1]:
        words = line.replace(",", " ").split()
        if words and words[0] in ("T", "T:", "F", "F:"):
            words = words[1:]
        if not words:
            continue
        if not all(_NUMBER.fullmatch(word) and LEAST_C <= float(word) <= MOST_C for word in words):
            raise BoardError(f"a thermometer should print temperatures in Celsius, found {line[:80]!r}.")
        readings.append([float(word) for word in words])
    if not readings or not math.isfinite(seconds):
        raise BoardError("a thermometer should print readings, found none.")
    ambient = min(readings[0]) if ambient_c is None else ambient_c
    return ThermalTrace(np.array([max(one) for one in readings]) + KELVIN, ambient + KELVIN, seconds)
