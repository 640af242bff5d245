"""Folders of wav files at any rate and length, with splits by file name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import wavfile

from automcu_ray.core.errors import ConfigError
from automcu_ray.signals.front_end import windows
from automcu_ray.testing.dataset_contract import DatasetContract, opened
from trainables.datasets.base import Dataset
from trainables.datasets.log_mel import as_samples
from trainables.datasets.wav_folders import placed, wav_folders

FAST: dict[str, Any] = {"rate_hz": 4000, "mels": 8, "frame_ms": 64, "hop_ms": 64, "seconds": 0.5}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOMCU_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def words(tmp_path: Path) -> str:
    """Two words by four speakers, four takes each, at rates and lengths of their own."""
    rng = np.random.default_rng(0)
    for word, hertz in (("yes", 400), ("no", 1200)):
        (tmp_path / "words" / word).mkdir(parents=True)
        for speaker, rate_hz in (("ann", 8000), ("bob", 44_100), ("eve", 4000), ("joe", 6000)):
            for take in range(4):
                times = np.arange(int(rate_hz * rng.uniform(0.2, 0.9))) / rate_hz
                wave = 0.3 * np.sin(2 * np.pi * hertz * times) + rng.normal(0, 0.01, len(times))
                wavfile.write(
                    tmp_path / "words" / word / f"{speaker}_{take}.wav", rate_hz, (wave * 32767).astype(np.int16)
                )
    return str(tmp_path / "words")


class TestWavFolders(DatasetContract):
    load = staticmethod(wav_folders)

    @pytest.fixture(autouse=True)
    def _words(self, words: str) -> None:
        self.folder = words

    def options(self) -> dict[str, Any]:
        return {"folder": self.folder, **FAST}


def test_speakers_and_takes_are_held_out_by_file_name(words: str) -> None:
    data = wav_folders(folder=words, test="^eve_", val=r"_0\.wav$", **FAST)
    assert (len(data.test), len(data.val), len(data.train)) == (8, 6, 18)
    assert data.classes == ("no", "yes") and data.input_shape == (1, 7, 8)
    low, high = (opened(data).images[opened(data).labels == label].mean(axis=(0, 1, 2)).argmax() for label in (1, 0))
    assert low < high


def test_a_recording_of_the_validation_split_is_there_for_the_board(words: str) -> None:
    data: Dataset = wav_folders(folder=words, test="^eve_", val="^joe_", **FAST)
    assert data.recording is not None and data.front_end is not None and data.recording.dtype == np.int16
    assert windows(data.front_end, data.recording, 512).shape[1:] == data.input_shape


def test_recordings_are_padded_or_cut_at_both_ends_or_at_the_end() -> None:
    wave = np.array([1, 2, 3], np.float32)
    assert placed(wave, 6, "centre").tolist() == [0, 1, 2, 3, 0, 0]
    assert placed(wave, 6, "start").tolist() == [1, 2, 3, 0, 0, 0]
    assert placed(np.arange(7, dtype=np.float32), 3, "centre").tolist() == [2, 3, 4]
    assert placed(np.arange(7, dtype=np.float32), 3, "start").tolist() == [0, 1, 2]
    assert as_samples(np.array([0.5, 1.5, -2], np.float32)).tolist() == [[16384], [32767], [-32768]]


@pytest.mark.parametrize(
    ("options", "words_of_it"),
    [
        ({"test": "("}, r"dataset\.test='\(' is no regular expression"),
        ({"test": "^zoe"}, r"dataset\.test='\^zoe' matches none of the names .* such as ann_0\.wav"),
        ({"val": "wav"}, r"dataset\.val='wav' matches all of the names"),
        ({"keywords": ("yse",)}, r"unknown keyword 'yse': did you mean 'yes'"),
        ({"features": "mfcc", "coefficients": 9}, r"dataset\.coefficients should be 1 to 8, found 9"),
        ({"rate_hz": 96_000, "mels": 30}, r"is 6144 samples, more than the 4096"),
        ({"seconds": 11.0}, r"no more than 10 seconds.*11\.$"),
    ],
)
def test_options_that_cannot_be(words: str, options: dict[str, Any], words_of_it: str) -> None:
    with pytest.raises(ConfigError, match=words_of_it):
        wav_folders(folder=words, **{**FAST, **options})
