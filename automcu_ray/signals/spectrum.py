"""Log-mel energies and MFCC in integers: what numpy computes here, `backends/c_qemu/stream` computes in C, bit by bit.

No step rounds in a way that a compiler could change: sums are exact, products are shifted down after adding one half.
"""

import functools
import math
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automcu_ray.core.models import FrozenModel

FLOOR_DB = -100.0  # 0 dB, level 255, is a sine at full scale; the floor, level 0, is below the noise of 16 bits
MAX_FFT = 4096  # beyond, a sum of powers could leave 64 bits
_LOWEST_HZ = 20.0
_LIFTER = 22  # of HTK: later coefficients are smaller, and grow by up to 12
WAVE_BITS, WEIGHT_BITS, LOG_BITS, LEVEL_BITS, COSINE_BITS = 15, 7, 8, 7, 13  # of fraction
LOG_STEPS = 64  # of the table of logarithms, an octave: 0.05 dB


class Spectrum(FrozenModel):
    """How a frame of sound becomes a row of pixels.

    Hann window, power spectrum, triangular filters evenly spaced in mel from 20 Hz to half the rate with
    mel = 2595 log10(1 + f / 700) (O'Shaughnessy 1987, as in HTK), decibels from `FLOOR_DB` on as levels 0 to 255.
    `mfcc`: the first `coefficients` of the cosine transform of those levels, liftered as in HTK, 128 standing for zero.
    """

    features: Literal["log_mel", "mfcc"] = "log_mel"
    rate_hz: int
    frame: Annotated[int, Field(ge=8, le=MAX_FFT)]
    hop: Annotated[int, Field(ge=1)]
    mels: Annotated[int, Field(ge=1, le=256)]
    coefficients: Annotated[int, Field(ge=1, le=40)] = 13

    @property
    def fft(self) -> int:
        """Points of the Fourier transform: the power of two that holds a frame."""
        return 1 << (self.frame - 1).bit_length()

    @property
    def width(self) -> int:
        """Pixels of a row."""
        return self.mels if self.features == "log_mel" else self.coefficients

    def rows(self, wave: NDArray[np.int16]) -> NDArray[np.uint8]:
        """Return a row (frames, width) of each whole frame of a wave (samples,)."""
        starts = np.lib.stride_tricks.sliding_window_view(wave, self.frame)[:: self.hop]
        made = tables(self)
        framed = _shifted(starts.astype(np.int64) * made.window, WAVE_BITS)
        levels = self._levels(power(framed, self.fft, made.twiddles) @ made.bands)
        if self.features == "log_mel":
            return np.asarray(_shifted(levels, LEVEL_BITS), np.uint8)
        sums = (levels - (128 << LEVEL_BITS)) @ made.cosines
        return np.clip(_shifted(sums, LEVEL_BITS + COSINE_BITS) + 128, 0, 255).astype(np.uint8)

    def _levels(self, energies: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return energies (frames, mels) as levels 0 to 255 with `LEVEL_BITS` of fraction, on the scale of decibels."""
        made = tables(self)
        floor = np.maximum(energies, np.uint64(1))
        octave = np.frexp(floor.astype(np.float64))[1] - 1  # a double may round up to the next octave
        octave -= (floor >> octave.astype(np.uint64)) == 0
        up = np.maximum(6 - octave, 0).astype(np.uint64)
        down = np.maximum(octave - 6, 0).astype(np.uint64)
        mantissa = ((floor << up) >> down).astype(np.int64) - LOG_STEPS
        logarithm = (octave.astype(np.int64) << LOG_BITS) + made.logarithms[mantissa]
        levels: NDArray[np.int64] = np.clip((logarithm * made.gain + made.bias) >> 16, 0, 255 << LEVEL_BITS)
        return levels


class Tables:
    """The constants of a spectrum, as the C has them."""

    def __init__(self, spectrum: Spectrum) -> None:
        points = np.arange(spectrum.fft // 2)
        hann = np.hanning(spectrum.frame + 1)[:-1]
        self.window = np.rint(hann * ((1 << WAVE_BITS) - 1)).astype(np.int64)
        angles = 2 * np.pi * points / spectrum.fft
        unit = (1 << WAVE_BITS) - 1
        self.twiddles = np.rint(np.stack([np.cos(angles), -np.sin(angles)]) * unit).astype(np.int64)
        weights = filters(spectrum.rate_hz, spectrum.fft, spectrum.mels)
        middles = _edges(spectrum.rate_hz, spectrum.mels)[1:-1]
        frequencies = _mel(np.arange(spectrum.fft // 2) * spectrum.rate_hz / spectrum.fft)
        self.upper_band = np.searchsorted(middles, frequencies, side="right")  # the band whose rising flank it is on
        at = np.arange(spectrum.fft // 2), np.minimum(self.upper_band, spectrum.mels - 1)
        falling = np.maximum(self.upper_band - 1, 0)
        rising = np.where(self.upper_band < spectrum.mels, weights[at], 1 - weights[at[0], falling])
        self.rising = np.rint(rising * (1 << WEIGHT_BITS)).astype(np.int64)
        self.bands = np.zeros((spectrum.fft // 2, spectrum.mels + 2), np.uint64)  # with what no band wants at each end
        self.bands[points, self.upper_band + 1] += self.rising.astype(np.uint64)
        self.bands[points, self.upper_band] += ((1 << WEIGHT_BITS) - self.rising).astype(np.uint64)
        self.bands = self.bands[:, 1:-1]
        steps = (np.arange(LOG_STEPS) + 0.5) / LOG_STEPS
        self.logarithms = np.rint(np.log2(1 + steps) * (1 << LOG_BITS)).astype(np.int64)
        # A sine at full scale: half the sum of the window, squared, and the weights' own factor.
        loudest = 2 * math.log2((1 << 15) * float(hann.sum()) / 2) + WEIGHT_BITS
        an_octave = 255 * 10 * math.log10(2) / -FLOOR_DB * (1 << LEVEL_BITS)
        self.gain = round(an_octave * (1 << (16 - LOG_BITS)))
        self.bias = round((255 * (1 << LEVEL_BITS) - loudest * an_octave) * (1 << 16))
        order = np.arange(spectrum.coefficients)
        lifter = 1 + _LIFTER / 2 * np.sin(np.pi * np.minimum(order, _LIFTER) / _LIFTER)
        cosines = np.cos(np.pi * order * (np.arange(spectrum.mels)[:, None] + 0.5) / spectrum.mels)
        self.cosines = np.rint(cosines * lifter / spectrum.mels * (1 << COSINE_BITS)).astype(np.int64)


@functools.lru_cache(maxsize=8)
def tables(spectrum: Spectrum) -> Tables:
    """Return the constants of a spectrum."""
    return Tables(spectrum)


def filters(rate_hz: int, fft: int, mels: int) -> NDArray[np.float64]:
    """Return the weights (fft / 2 + 1 frequencies, mels) of triangular bands; each has its peak, 1, at its middle."""
    edges = _edges(rate_hz, mels)
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    mel = _mel(np.arange(fft // 2 + 1) * rate_hz / fft)[:, None]
    weights = np.minimum((mel - low) / (middle - low), (high - mel) / (high - middle))
    return np.asarray(np.maximum(0, weights))


def power(frames: NDArray[np.int64], fft: int, twiddles: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return |X|^2 (frames, fft / 2) of real frames (frames, samples), zeros added; the frequency 1/2 is left out.

    A complex transform of half the points (radix 2, decimation in time) over even samples + i odd samples, then split.
    """
    half = fft // 2
    padded = np.zeros((len(frames), fft), np.int64)
    padded[:, : frames.shape[1]] = frames
    bits = half.bit_length() - 1
    order = np.array([int(f"{k:0{bits}b}"[::-1], 2) if bits else 0 for k in range(half)])
    re, im = padded[:, 0::2][:, order], padded[:, 1::2][:, order]
    size = 2
    while size <= half:
        cos, sin = twiddles[:, :: fft // size][:, : size // 2]
        a, b = (part.reshape(len(frames), -1, 2, size // 2) for part in (re, im))
        turned_re = _shifted(a[:, :, 1] * cos - b[:, :, 1] * sin, WAVE_BITS)
        turned_im = _shifted(a[:, :, 1] * sin + b[:, :, 1] * cos, WAVE_BITS)
        re = np.stack([a[:, :, 0] + turned_re, a[:, :, 0] - turned_re], 2).reshape(len(frames), half)
        im = np.stack([b[:, :, 0] + turned_im, b[:, :, 0] - turned_im], 2).reshape(len(frames), half)
        size *= 2
    back = -np.arange(half) % half
    even_re, even_im = re + re[:, back], im - im[:, back]
    odd_re, odd_im = im + im[:, back], re[:, back] - re
    cos, sin = twiddles
    real = (even_re + _shifted(odd_re * cos - odd_im * sin, WAVE_BITS)) >> 1
    imaginary = (even_im + _shifted(odd_re * sin + odd_im * cos, WAVE_BITS)) >> 1
    return np.asarray(real * real + imaginary * imaginary, np.uint64)


def _shifted(values: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    return (values + (1 << bits - 1)) >> bits


def _edges(rate_hz: int, mels: int) -> NDArray[np.float64]:
    return np.linspace(_mel(_LOWEST_HZ), _mel(rate_hz / 2), mels + 2)


def _mel(hertz: NDArray[np.float64] | float) -> NDArray[np.float64]:
    return np.asarray(2595 * np.log10(1 + np.asarray(hertz) / 700))
