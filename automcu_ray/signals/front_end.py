"""What every front end is: samples of 16 bits in, a window of pixels out, in integers that C repeats exactly."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automcu_ray.core.models import FrozenModel
from automcu_ray.signals.spectrum import Spectrum

Samples = NDArray[np.int16]  # (samples, channels)
PIXEL_BITS = 16  # of fraction in `SampleWindow`'s factors


class AudioWindow(FrozenModel):
    """Sound as a picture (1, frames, features): a row of the spectrum's features each hop."""

    kind: Literal["audio"] = "audio"
    spectrum: Spectrum
    frames: Annotated[int, Field(ge=1, le=1024)]

    @property
    def channels(self) -> int:
        """Values a sample has."""
        return 1

    @property
    def rate_hz(self) -> float:
        """Samples a second."""
        return self.spectrum.rate_hz

    @property
    def span(self) -> int:
        """Samples that one window reads."""
        return self.spectrum.frame + (self.frames - 1) * self.spectrum.hop

    @property
    def step(self) -> int:
        """Samples after which a window moves on by one row."""
        return self.spectrum.hop

    @property
    def steps(self) -> int:
        """Rows of one window."""
        return self.frames

    def window(self, samples: Samples) -> NDArray[np.uint8]:
        """Return the picture (1, frames, features) of the first `span` samples (samples, 1)."""
        return self.spectrum.rows(samples[: self.span, 0])[None]


class SampleWindow(FrozenModel):
    """Samples of some channels as they are, (channels, 1, time): each a pixel by a factor and an offset.

    A sample is a whole number of `units_per_count`, a channel's physical unit; a pixel is
    (count * factor + offset) / 2^16, rounded down and cut to 0..255. This is where normalisation ships.
    """

    kind: Literal["samples"] = "samples"
    names: tuple[str, ...]
    units_per_count: tuple[float, ...]
    factors: tuple[int, ...]
    offsets: tuple[int, ...]
    rate_hz: float
    length: Annotated[int, Field(ge=2, le=4096)]

    @classmethod
    def fitted(
        cls, names: tuple[str, ...], values: NDArray[np.float64], rate_hz: float, length: int, *, deviations: float = 4
    ) -> "SampleWindow":
        """Return the window whose pixels 0 to 255 are so many standard deviations of `values` (n, channels) each way.

        Counts reach four times as far on either side.
        """
        mean, spread = values.mean(axis=0), np.maximum(values.std(axis=0), 1e-6)
        units = (np.abs(mean) + 4 * deviations * spread) / (1 << 15)
        per_unit = 128 / (deviations * spread) * (1 << PIXEL_BITS)
        offsets = np.rint((128.5 * (1 << PIXEL_BITS)) - mean * per_unit)
        return cls(
            names=names,
            units_per_count=tuple(units.tolist()),
            factors=tuple(int(value) for value in np.rint(units * per_unit)),
            offsets=tuple(int(value) for value in offsets),
            rate_hz=rate_hz,
            length=length,
        )

    def in_units(self, units_per_count: tuple[float, ...]) -> "SampleWindow":
        """Return the window of a sensor whose counts stand for other units; pixels stay."""
        pairs = zip(self.factors, self.units_per_count, units_per_count, strict=True)
        factors = tuple(round(factor * new / old) for factor, old, new in pairs)
        return self.replace(factors=factors, units_per_count=units_per_count)

    @property
    def channels(self) -> int:
        """Values a sample has."""
        return len(self.names)

    @property
    def span(self) -> int:
        """Samples that one window reads."""
        return self.length

    @property
    def step(self) -> int:
        """Samples after which a window moves on by one column."""
        return 1

    @property
    def steps(self) -> int:
        """Columns of one window."""
        return self.length

    def counts(self, values: NDArray[np.float64]) -> Samples:
        """Return physical values (n, channels) as a sensor's whole numbers, cut to 16 bits."""
        low, high = -(1 << 15), (1 << 15) - 1
        counts: Samples = np.clip(np.rint(values / np.array(self.units_per_count)), low, high).astype(np.int16)
        return counts

    def window(self, samples: Samples) -> NDArray[np.uint8]:
        """Return the picture (channels, 1, length) of the first `length` samples (samples, channels)."""
        scaled = samples[: self.length].astype(np.int64) * np.array(self.factors) + np.array(self.offsets)
        pixels: NDArray[np.uint8] = np.clip(scaled >> PIXEL_BITS, 0, 255).astype(np.uint8)
        return pixels.T[:, None]


FrontEnd = Annotated[AudioWindow | SampleWindow, Field(discriminator="kind")]


def windows(front_end: AudioWindow | SampleWindow, samples: Samples, every: int) -> NDArray[np.uint8]:
    """Return the windows (N, C, H, W) of a recording, one each `every` samples, as a stream sees them."""
    starts = range(0, len(samples) - front_end.span + 1, every)
    return np.stack([front_end.window(samples[start:]) for start in starts])
