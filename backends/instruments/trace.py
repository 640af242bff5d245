"""Figures of paper 001 from traces of current and temperature (appendices D and E), at the full sample rate."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from automcu_ray.core.errors import BoardError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PowerTrace:
    """Current in ampere, sampled at `rate_hz` from second 0 on, at a supply of `volts` (a number, or one a sample)."""

    amperes: Floats
    rate_hz: float
    volts: float | Floats = 3.3

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
        return PowerTrace(self.amperes[part], self.rate_hz, volts)

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

    def objective(self, *, rise_weight: float, seconds_weight: float) -> float:
        """Return J = w_T * dT + w_t * t (equation 10)."""
        return rise_weight * self.peak_rise_kelvin + seconds_weight * self.seconds


def over_ceiling(measured: float, ceiling: float, what: str) -> str:
    """Return why a figure passes a ceiling, a hard limit of C; "" where it does not. What is no number passes it."""
    return "" if measured <= ceiling else f"{what} is {measured:g}, the ceiling {ceiling:g}"
