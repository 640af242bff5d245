"""Sound as pictures: wav files as log-mel energies or MFCC, 8 bits each."""

import io
import math
import struct
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import signal
from scipy.io import wavfile

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.models import FrozenModel
from automcu_ray.signals.front_end import AudioWindow, Samples
from automcu_ray.signals.spectrum import MAX_FFT, Spectrum, filters
from trainables.datasets.base import Images, in_short

Wave = NDArray[np.float32]  # (samples,), -1 to 1
MAX_FILE_BYTES = 1 << 26  # over half an hour at 16 kHz
RATES_HZ = (4_000, 192_000)
MAX_MELS, MAX_COEFFICIENTS, MAX_SECONDS = 256, 40, 10.0

# Chunks that are no sound (names, dates) are in many files and harm nothing.
warnings.filterwarnings("ignore", category=wavfile.WavFileWarning)


class LogMel(FrozenModel):
    """How sound becomes a picture: `mels` bands of a short-time spectrum, or their cepstrum, a row each `hop_ms`."""

    rate_hz: int
    mels: int
    frame_ms: float
    hop_ms: float
    resample: bool
    seconds: float = 1.0
    features: Literal["log_mel", "mfcc"] = "log_mel"
    coefficients: int = 13

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
        """Return the first seconds of a wave, silence added where it is shorter, as (1, frames, width) uint8."""
        whole = np.zeros(round(self.rate_hz * self.seconds), np.float32)
        whole[: len(wave)] = wave[: len(whole)]
        return self.window.window(as_samples(whole))

    def joined(self, paths: Sequence[Path], seconds: float) -> Samples:
        """Return recordings one after the other, as far as needed for so many seconds: what a microphone hears."""
        waves: list[Wave] = []
        while paths and sum(map(len, waves)) < seconds * self.rate_hz:
            waves.append(self.read(paths[0]))
            paths = paths[1:]
        return as_samples(np.concatenate(waves)[: round(seconds * self.rate_hz)])

    @property
    def window(self) -> AudioWindow:
        """How samples become the picture, on the microcontroller too."""
        frame, hop = self._samples(self.frame_ms), self._samples(self.hop_ms)
        spectrum = Spectrum(
            features=self.features,
            rate_hz=self.rate_hz,
            frame=frame,
            hop=hop,
            mels=self.mels,
            coefficients=self.coefficients,
        )
        return AudioWindow(spectrum=spectrum, frames=1 + (round(self.rate_hz * self.seconds) - frame) // hop)

    def check(self) -> None:
        """Refuse lengths and rates of which no picture can be made."""
        low, high = RATES_HZ
        if not (
            low <= self.rate_hz <= high
            and 1 <= self.mels <= MAX_MELS
            and 1 <= self.hop_ms <= self.frame_ms <= 1000 * self.seconds
            and self.seconds <= MAX_SECONDS
        ):
            raise ConfigError(
                f"dataset wants rate_hz {low} to {high}, mels 1 to {MAX_MELS}, 1 <= hop_ms <= frame_ms <= 1000 and no "
                f"more than {MAX_SECONDS:g} seconds; found {self.rate_hz}, {self.mels}, {self.hop_ms:g}, "
                f"{self.frame_ms:g}, {self.seconds:g}."
            )
        if (frame := self._samples(self.frame_ms)) > MAX_FFT:
            raise ConfigError(
                f"dataset.frame_ms={self.frame_ms:g} at {self.rate_hz} Hz is {frame} samples, more than the {MAX_FFT} "
                "that the transform takes: shorter frames, or a lower rate."
            )
        fft = 1 << (frame - 1).bit_length()
        if not filters(self.rate_hz, fft, self.mels).any(axis=0).all():
            raise ConfigError(
                f"dataset.mels={self.mels} is too many for frames of {self.frame_ms:g} ms: a band has no frequency of "
                "its own. Take fewer bands or longer frames."
            )
        if self.features == "mfcc" and not 1 <= self.coefficients <= min(self.mels, MAX_COEFFICIENTS):
            raise ConfigError(
                f"dataset.coefficients should be 1 to {min(self.mels, MAX_COEFFICIENTS)}, found {self.coefficients}."
            )

    def _samples(self, milliseconds: float) -> int:
        return round(self.rate_hz * milliseconds / 1000)


def as_samples(wave: Wave) -> Samples:
    """Return a wave as whole numbers of 16 bits (samples, 1)."""
    return np.clip(np.rint(wave * 32768), -32768, 32767).astype(np.int16)[:, None]


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
