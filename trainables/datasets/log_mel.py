"""Sound as pictures: one second of a wav file as log-mel energies, 8 bits each."""

import functools
import io
import math
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, signal
from scipy.io import wavfile

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.models import FrozenModel
from trainables.datasets.base import Images, in_short

Wave = NDArray[np.float32]  # (samples,), -1 to 1
MAX_FILE_BYTES = 1 << 26  # over half an hour at 16 kHz
RATES_HZ = (4_000, 192_000)
MAX_MELS = 256
FLOOR_DB = -100.0  # 0 dB, level 255, is a sine at full scale; the floor, level 0, is below the noise of 16 bits
_LOWEST_HZ = 20.0

# Chunks that are no sound (names, dates) are in many files and harm nothing.
warnings.filterwarnings("ignore", category=wavfile.WavFileWarning)


class LogMel(FrozenModel):
    """How sound becomes a picture: `mels` bands of a short-time spectrum, a column of them each `hop_ms`."""

    rate_hz: int
    mels: int
    frame_ms: float
    hop_ms: float
    resample: bool

    def read(self, path: Path) -> Wave:
        """Return a wav file as one channel at `rate_hz`, several channels averaged.

        Raises:
            ConfigError: no wav file, a damaged, cut or empty one, or one at another rate where `resample` is off.
        """
        rate_hz, samples = _read(path)
        with np.errstate(over="ignore"):  # doubles beyond float32 become infinite, and are refused as that
            wave: Wave = samples.astype(np.float32)
        if samples.dtype == np.uint8:  # 8 bits are unsigned in wav files, 24 bits come left-justified in 32
            wave -= 128
            wave /= 128
        elif samples.dtype.kind == "i":
            wave /= 2.0 ** (8 * samples.dtype.itemsize - 1)
        if wave.ndim == 2:
            wave = wave.mean(axis=1)
        if not len(wave) or not np.isfinite(wave).all():
            raise ConfigError(f"{path}: no sound in it, or values that are not finite: remove or replace it.")
        if rate_hz == self.rate_hz:
            return wave
        if not self.resample:
            raise ConfigError(
                f"{path} is at {rate_hz} Hz, wanted {self.rate_hz}: --set dataset.resample=true converts such files, "
                "dataset.rate_hz takes all files at another rate."
            )
        common = math.gcd(rate_hz, self.rate_hz)
        return np.asarray(signal.resample_poly(wave, self.rate_hz // common, rate_hz // common), np.float32)

    def picture(self, wave: Wave) -> Images:
        """Return the first second of a wave, silence added where it is shorter, as (1, frames, mels) uint8.

        Hann window, power spectrum, triangular filters evenly spaced in mel from 20 Hz to half the rate with
        mel = 2595 log10(1 + f / 700) (O'Shaughnessy 1987, as in HTK), decibels; rounded to 256 levels.
        """
        second = np.zeros(self.rate_hz, np.float32)
        second[: len(wave)] = wave[: self.rate_hz]
        frame, hop = self._samples(self.frame_ms), self._samples(self.hop_ms)
        window = np.hanning(frame + 1)[:-1].astype(np.float32)
        frames = np.lib.stride_tricks.sliding_window_view(second, frame)[::hop] * window
        spectrum = np.abs(fft.rfft(frames, self.fft_size, axis=1)) ** 2 / (window.sum() / 2) ** 2
        level = 10 * np.log10(np.maximum(spectrum @ filters(self), 1e-12)) / -FLOOR_DB + 1
        picture: Images = np.round(np.clip(level, 0, 1) * 255).astype(np.uint8)[None]
        return picture

    def check(self) -> None:
        """Refuse lengths and rates of which no picture can be made."""
        low, high = RATES_HZ
        if not (
            low <= self.rate_hz <= high and 1 <= self.mels <= MAX_MELS and 1 <= self.hop_ms <= self.frame_ms <= 1000
        ):
            raise ConfigError(
                f"dataset wants rate_hz {low} to {high}, mels 1 to {MAX_MELS}, and 1 <= hop_ms <= frame_ms <= 1000; "
                f"found {self.rate_hz}, {self.mels}, {self.hop_ms:g}, {self.frame_ms:g}."
            )
        if not filters(self).any(axis=0).all():
            raise ConfigError(
                f"dataset.mels={self.mels} is too many for frames of {self.frame_ms:g} ms: a band has no frequency of "
                "its own. Take fewer bands or longer frames."
            )

    def _samples(self, milliseconds: float) -> int:
        return round(self.rate_hz * milliseconds / 1000)

    @property
    def fft_size(self) -> int:
        """Points of the Fourier transform: the power of two that holds a frame."""
        return 1 << (self._samples(self.frame_ms) - 1).bit_length()


@functools.cache
def filters(features: LogMel) -> NDArray[np.float32]:
    """Return the weights (frequencies, mels) of triangular bands; each has its peak, 1, at its middle."""
    frequencies = fft.rfftfreq(features.fft_size, 1 / features.rate_hz)
    edges = np.linspace(_mel(_LOWEST_HZ), _mel(features.rate_hz / 2), features.mels + 2)
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    mel = _mel(frequencies)[:, None]
    weights = np.minimum((mel - low) / (middle - low), (high - mel) / (high - middle))
    return np.asarray(np.maximum(0, weights), np.float32)


def _mel(hertz: NDArray[np.float64] | float) -> NDArray[np.float64]:
    return np.asarray(2595 * np.log10(1 + np.asarray(hertz) / 700))


def _read(path: Path) -> tuple[int, NDArray[Any]]:
    """Return rate in Hz and samples, (n,) or (n, channels), as they are in the file."""
    try:
        with path.open("rb") as file:
            blob = file.read(MAX_FILE_BYTES + 1)
        if len(blob) > MAX_FILE_BYTES:
            raise ValueError(f"more than {MAX_FILE_BYTES >> 20} MB")
        if blob[:4] == b"RIFF" and struct.unpack("<I", blob[4:8])[0] + 8 > len(blob):
            raise ValueError(f"cut, at {len(blob)} bytes")
        rate_hz, samples = wavfile.read(io.BytesIO(blob))  # in memory: no length in the file is believed
        if not RATES_HZ[0] <= rate_hz <= RATES_HZ[1]:
            raise ValueError(f"a rate of {rate_hz} Hz")
    except Exception as error:  # a parser's own: ValueError, struct.error, ZeroDivisionError, UnboundLocalError, ...
        raise ConfigError(f"{path} is no whole wav file ({in_short(error)}): remove or replace it.") from error
    return int(rate_hz), samples
