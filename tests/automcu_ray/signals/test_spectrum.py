"""The integer spectrum beside the same in float, and figures worked out by hand."""

import numpy as np
import pytest
from numpy.typing import NDArray

from automcu_ray.signals.front_end import AudioWindow, SampleWindow, windows
from automcu_ray.signals.spectrum import Spectrum, filters, power, tables

SPEECH = Spectrum(rate_hz=16_000, frame=480, hop=320, mels=40)
MFCC = SPEECH.replace(features="mfcc")


def sounds(rate_hz: int) -> NDArray[np.int16]:
    """A second between -60 dB, below which rounding shows, and clipping."""
    rng = np.random.default_rng(0)
    loudness = 10 ** rng.uniform(1.5, 5, rate_hz // 500).repeat(500)
    return np.clip(rng.normal(size=len(loudness)) * loudness, -32768, 32767).astype(np.int16)


@pytest.mark.parametrize(("rate_hz", "frame", "mels"), [(16_000, 480, 40), (8_000, 240, 32), (48_000, 4_000, 64)])
def test_levels_are_those_of_float_within_one_of_256(rate_hz: int, frame: int, mels: int) -> None:
    spectrum = Spectrum(rate_hz=rate_hz, frame=frame, hop=frame // 2, mels=mels)
    wave, hann = sounds(rate_hz), np.hanning(frame + 1)[:-1]
    framed = np.lib.stride_tricks.sliding_window_view(wave / 32768, frame)[:: frame // 2] * hann
    energies = np.abs(np.fft.rfft(framed, spectrum.fft, axis=1)) ** 2 / (hann.sum() / 2) ** 2
    decibels = 10 * np.log10(np.maximum(energies @ filters(rate_hz, spectrum.fft, mels), 1e-12))
    expected = np.round(np.clip(decibels / 100 + 1, 0, 1) * 255)
    found = spectrum.rows(wave)
    assert np.abs(found - expected).max() <= 1 and np.ptp(found) > 100
    assert np.mean(found != expected) < 0.1


def test_power_is_that_of_fourier_s_transform() -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(-32768, 32768, (3, 60))
    found = power(frames, 64, tables(SPEECH.replace(frame=64)).twiddles)
    expected = np.abs(np.fft.rfft(frames, 64, axis=1)[:, :-1]) ** 2
    assert np.allclose(np.sqrt(found), np.sqrt(expected), atol=80)  # of up to 500,000


def test_silence_is_the_floor_and_its_cepstrum_that_of_a_flat_spectrum() -> None:
    silence = np.zeros(480, np.int16)
    assert not SPEECH.rows(silence).any()
    assert MFCC.rows(silence).tolist() == [[0] + [128] * 12]


def test_cepstrum_is_the_liftered_cosine_transform_of_the_levels() -> None:
    wave = sounds(16_000)
    levels = SPEECH.rows(wave).astype(float) - 128
    order, bands = np.arange(13), np.arange(40)
    lifter = 1 + 11 * np.sin(np.pi * order / 22)
    expected = levels @ np.cos(np.pi * order * (bands[:, None] + 0.5) / 40) * lifter / 40 + 128
    assert np.abs(MFCC.rows(wave) - np.clip(expected, 0, 255)).max() <= 3  # levels here are rounded before, there after


def test_samples_become_pixels_by_four_standard_deviations_each_way() -> None:
    values = np.array([[9.0, -1], [11, 1]]).repeat(50, axis=0)  # mean 10 and 0, deviation 1
    window = SampleWindow.fitted(("x", "y"), values, 50, 4)
    counts = window.counts(np.array([[10.0, 0], [14, -4], [6, 4], [100, 0]]))
    assert window.window(counts)[:, 0].tolist() == [[128, 255, 0, 255], [128, 0, 255, 128]]
    assert abs(counts[0, 0] * window.units_per_count[0] - 10) < window.units_per_count[0]
    coarse = window.in_units((0.01, 0.01))
    assert coarse.counts(np.array([[10.0, 0]])).tolist() == [[1000, 0]]
    assert coarse.window(coarse.counts(np.array([[10.0, 0], [14, -4], [6, 4], [12, 2]])))[0, 0].tolist() == [
        128,
        255,
        0,
        192,
    ]


def test_windows_of_a_recording_begin_every_so_many_samples() -> None:
    window = AudioWindow(spectrum=SPEECH, frames=3)
    wave = sounds(16_000)[:, None]
    found = windows(window, wave, 320)
    assert found.shape == ((16_000 - 1120) // 320 + 1, 1, 3, 40) and window.span == 1120
    assert (found[1, 0, :2] == found[0, 0, 1:]).all()
