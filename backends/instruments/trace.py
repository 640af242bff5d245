"""Figures of paper 001 from traces of current and temperature (appendices D and E), at the full sample rate."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from automcu_ray.core.errors import BoardError

Floats = npt.NDArray[np.float64]
KELVIN = 273.15  # of 0 degrees Celsius


@dataclass(frozen=True)
class PowerTrace:
    """Current in ampere, sampled at `rate_hz` from second 0 on, at a supply of `volts` (a number, or one a sample).

    `started_s` is what `time.monotonic` said at second 0, so that lines of the serial port can be markers. `logic` are
    digital inputs, a bit a channel, where the instrument has them.
    """

    amperes: Floats
    rate_hz: float
    volts: float | Floats = 3.3
    started_s: float = 0.0
    logic: npt.NDArray[np.uint8] | None = None

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.amperes) / self.rate_hz

    def between(self, start_s: float, end_s: float) -> "PowerTrace":
        """Return the part between two markers, such as lines of the serial port.

        Raises:
            BoardError: the markers do not lie in the trace, in this order.
        """
        if not 0 <= start_s < end_s <= self.seconds:
            raise BoardError(f"markers should lie within 0 to {self.seconds:g} s, found {start_s:g} and {end_s:g}.")
        part = slice(round(start_s * self.rate_hz), round(end_s * self.rate_hz))
        volts = self.volts if isinstance(self.volts, float) else self.volts[part]
        logic = None if self.logic is None else self.logic[part]
        return PowerTrace(self.amperes[part], self.rate_hz, volts, self.started_s + start_s, logic)

    def between_lines(self, first_s: float, last_s: float) -> "PowerTrace":
        """Return the part between two moments of `time.monotonic`, at which lines of the serial port came.

        Raises:
            BoardError: as for `between`.
        """
        return self.between(first_s - self.started_s, last_s - self.started_s)

    def falling_edges_s(self, channel: int) -> list[float]:
        """Return the seconds at which a digital input fell, as the timing pin of MLPerf's energy mode does.

        Raises:
            BoardError: the instrument recorded no digital inputs.
        """
        if self.logic is None:
            raise BoardError("this instrument records no digital inputs: take lines of the serial port as markers.")
        level = (self.logic >> channel) & 1
        return [float(at) / self.rate_hz for at in np.flatnonzero((level[:-1] == 1) & (level[1:] == 0)) + 1]

    @property
    def peak_amperes(self) -> float:
        """The largest sample, I_peak (equation 4): no average hides a spike."""
        return float(self.amperes.max())

    @property
    def mean_amperes(self) -> float:
        """The mean of all samples."""
        return float(self.amperes.mean())

    @property
    def joules(self) -> float:
        """The integral of V * I dt (equation 5); every sample stands for one period."""
        return float(np.sum(self.volts * self.amperes) / self.rate_hz)


@dataclass(frozen=True)
class ThermalTrace:
    """Temperature in kelvin over a run of `seconds`, and the ambient one."""

    kelvin: Floats
    ambient_kelvin: float
    seconds: float

    @property
    def peak_rise_kelvin(self) -> float:
        """The largest rise above ambient (equations 8 and 9)."""
        return float(self.kelvin.max()) - self.ambient_kelvin

    @property
    def peak_celsius(self) -> float:
        """The largest temperature itself."""
        return float(self.kelvin.max()) - KELVIN

    def objective(self, *, rise_weight: float, seconds_weight: float) -> float:
        """Return J = w_T * dT + w_t * t (equation 10)."""
        return rise_weight * self.peak_rise_kelvin + seconds_weight * self.seconds


def over_ceiling(measured: float, ceiling: float, what: str) -> str:
    """Return why a figure passes a ceiling, a hard limit of C; "" where it does not. What is no number passes it."""
    return "" if measured <= ceiling else f"{what} is {measured:g}, the ceiling {ceiling:g}"
