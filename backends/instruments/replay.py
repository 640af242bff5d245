"""A recorded trace as an instrument: what was measured once is measured again, without a cable."""

import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from automcu_ray.core.errors import ConfigError
from backends.instruments.base import Instrument
from backends.instruments.trace import PowerTrace


class Replay(Instrument):
    """Gives back a recorded trace of current, from the moment it is started.

    Args:
        path: an .npz with `amperes` (1-d), `rate_hz` and `volts`.
    """

    name = "replay"

    def __init__(self, *, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as file:
                amperes = np.asarray(file["amperes"], np.float64)
                rate_hz, volts = float(file["rate_hz"]), float(file["volts"])
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise ConfigError(f"{path}: a trace is an .npz with amperes, rate_hz and volts: {error}.") from error
        if amperes.ndim != 1 or not len(amperes) or not np.isfinite(amperes).all() or not 0 < rate_hz < np.inf:
            raise ConfigError(f"{path}: amperes should be a list of finite numbers at a rate above 0.")
        self.trace = PowerTrace(amperes, rate_hz, volts)

    def record(self, seconds: float) -> PowerTrace:
        """Return the first seconds of the trace."""
        return self.trace.between(0, seconds)

    def start(self) -> None:
        """Say that the trace begins now."""
        self.trace = replace(self.trace, started_s=time.monotonic())

    def stop(self) -> PowerTrace:
        return self.trace

    def close(self) -> None:
        """Nothing was opened."""


def save(trace: PowerTrace, path: Path) -> None:
    """Write a trace so that `Replay` reads it."""
    np.savez_compressed(path, amperes=trace.amperes, rate_hz=trace.rate_hz, volts=trace.volts)
