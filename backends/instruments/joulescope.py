"""A Joulescope (JS110, JS220, JS320) by its maker's driver, pyjoulescope-driver (Apache-2.0): current and voltage."""

import importlib
import threading
import time
from typing import Any, ClassVar

import numpy as np

from automcu_ray.core.errors import BoardError, ConfigError, ToolMissingError
from backends.instruments.base import Instrument
from backends.instruments.trace import PowerTrace

PACKAGE = "pyjoulescope_driver"
SIGNALS = ("i", "v")
MOST_SAMPLES = 1 << 28


class Joulescope(Instrument):
    """The one that is attached, or the one whose path is named, at its own rate; it feeds nothing.

    Not tried on a real one: topics and values are those of pyjoulescope-driver 2.2's own recorder.

    Args:
        path: as `pyjoulescope_driver scan` tells it.
    """

    name = "joulescope"
    usb: ClassVar[tuple[tuple[int, int], ...]] = ((0x16D0, 0x0E88), (0x16D0, 0x10BA))

    def __init__(self, *, path: str | None = None) -> None:
        self.path = path
        self._driver: Any = None
        self._device = ""
        self._parts: dict[str, list[dict[str, Any]]] = {}
        self._started_s, self._lock = 0.0, threading.Lock()

    def start(self) -> None:
        if self._driver is None:
            self._open()
        self._parts, self._started_s = {signal: [] for signal in SIGNALS}, 0.0
        for signal in SIGNALS:
            self._driver.subscribe(f"{self._device}/s/{signal}/!data", ["pub"], self._on_data)
            self._driver.publish(f"{self._device}/s/{signal}/ctrl", 1)

    def stop(self) -> PowerTrace:
        if self._driver is None:
            raise BoardError("a Joulescope should record before it is stopped.")
        for signal in SIGNALS:
            self._driver.publish(f"{self._device}/s/{signal}/ctrl", 0)
            self._driver.unsubscribe(f"{self._device}/s/{signal}/!data", self._on_data)
        with self._lock:
            current, volts = (joined(self._parts[signal]) for signal in SIGNALS)
        first = max(current[0], volts[0])
        count = min(current[0] + len(current[2]), volts[0] + len(volts[2])) - first
        if current[1] != volts[1] or count <= 0:
            raise BoardError("a Joulescope should send current and voltage of the same time, found others.")
        amperes, level = (one[2][first - one[0] :][:count] for one in (current, volts))
        return PowerTrace(amperes, current[1], level, self._started_s)

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close(self._device)
            self._driver.finalize()
            self._driver = None

    def _open(self) -> None:
        try:
            package = importlib.import_module(PACKAGE)
        except ImportError as error:
            raise ToolMissingError(
                f"instrument 'joulescope' needs the package {PACKAGE}: pip install 'automcu-ray[joulescope]'."
            ) from error
        driver = package.Driver()
        try:
            found = list(driver.device_paths())
            wanted = [self.path] if self.path else found
            if len(wanted) != 1 or wanted[0] not in found:
                kind = ConfigError if len(found) > 1 else BoardError
                raise kind(f"one Joulescope should be attached, or `path` name one of them, found {found or 'none'}.")
            driver.open(wanted[0])
            driver.publish(f"{wanted[0]}/s/i/range/mode", "auto")
        except RuntimeError as error:  # the driver's own kind
            driver.finalize()
            raise BoardError(f"a Joulescope cannot be opened: {error}") from error
        except (ConfigError, BoardError):
            driver.finalize()
            raise
        self._driver, self._device = driver, wanted[0]

    def _on_data(self, topic: str, value: dict[str, Any]) -> None:
        """Take samples, in the driver's thread."""
        with self._lock:
            parts = self._parts[topic.split("/")[-2]]
            if not self._started_s:
                self._started_s = (
                    time.monotonic() - len(value["data"]) * value["decimate_factor"] / value["sample_rate"]
                )
            if sum(len(part["data"]) for part in parts[-1:]) and len(parts) * len(value["data"]) > MOST_SAMPLES:
                return
            parts.append({**value, "data": np.array(value["data"], np.float64)})


def joined(parts: list[dict[str, Any]]) -> "tuple[int, float, np.ndarray[tuple[int], np.dtype[np.float64]]]":
    """Return number of the first sample, rate in Hz, and all samples of one signal.

    Raises:
        BoardError: none came, or some are missing in between.
    """
    if not parts:
        raise BoardError("a Joulescope should send samples, found none.")
    factor = int(parts[0]["decimate_factor"])
    first = at = int(parts[0]["sample_id"]) // factor
    for part in parts:
        if int(part["sample_id"]) // factor != at:
            raise BoardError("a Joulescope should send all samples, found a gap: energy and peak would be wrong.")
        at += len(part["data"])
    return first, float(parts[0]["sample_rate"]) / factor, np.concatenate([part["data"] for part in parts])
