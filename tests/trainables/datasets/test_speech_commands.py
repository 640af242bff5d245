"""Spoken words in wav files: log-mel pictures whose values are known, splits as published, hostile files."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.io import wavfile

from automcu_ray.core.errors import ConfigError
from automcu_ray.signals.spectrum import filters
from automcu_ray.testing.dataset_contract import opened
from trainables.datasets import prepared
from trainables.datasets.base import Split
from trainables.datasets.log_mel import LogMel
from trainables.datasets.speech_commands import Clip, _noise, speech_commands, which_part

RATE_HZ = 4000
FAST: dict[str, Any] = {"rate_hz": RATE_HZ, "mels": 8, "frame_ms": 128, "hop_ms": 110}  # 8 frames of 512 samples
FEATURES = LogMel(rate_hz=16_000, mels=40, frame_ms=30, hop_ms=20, resample=False)
# Names whose hash is 0.7 % and 7.8 %; 11 % to 20 %; above 20 %.
VAL, TEST, TRAIN = ("026290a7", "060cd039"), ("bb05582b", "0c40e715"), ("0132a06d", "00176480", "004ae714")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOMCU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tone(hertz: float, seconds: float = 1.0, rate_hz: int = RATE_HZ, loudness: float = 0.5) -> NDArray[np.float32]:
    return (loudness * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate_hz)) / rate_hz)).astype(np.float32)


def write(path: Path, wave: NDArray[np.float32], rate_hz: int = RATE_HZ) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    wavfile.write(path, rate_hz, (wave * 32767).astype(np.int16))


def recorded(root: Path, noise: bool = False, **words: float) -> str:
    """Write words as tones, spoken by all speakers; return the folder."""
    for word, hertz in words.items():
        for speaker in (*TRAIN, *VAL, *TEST):
            write(root / word / f"{speaker}_nohash_0.wav", tone(hertz))
    if noise:
        write(root / "_background_noise_" / "hum.wav", tone(50, 12, loudness=0.1))
    return str(root)


class TestPictures:
    def test_a_full_scale_sine_is_the_brightest_level_in_its_own_band_and_nothing_else_is_bright(self) -> None:
        middle = 700 * (10 ** (np.linspace(31.7, 2840.0, 42)[21] / 2595) - 1)  # of band 20, in Hz
        picture = FEATURES.picture(tone(middle, rate_hz=16_000, loudness=1.0))
        assert picture.shape == (1, 49, 40) and picture.dtype == np.uint8
        assert (picture[0].argmax(axis=1) == 20).all() and picture[0, :, 20].min() >= 253  # 255 is 0 dB
        assert picture[0, :, :10].max() < 130 and picture[0, :, 30:].max() < 130

    def test_ten_times_less_amplitude_is_20_db_or_51_levels_less(self) -> None:
        loud, soft = (FEATURES.picture(tone(1000, rate_hz=16_000, loudness=value)) for value in (0.5, 0.05))
        band = int(loud[0, 5].argmax())
        assert abs(int(loud[0, 5, band]) - int(soft[0, 5, band]) - 51) <= 1

    def test_silence_is_black_and_a_short_recording_ends_in_silence(self) -> None:
        assert not FEATURES.picture(np.zeros(16_000, np.float32)).any()
        short = FEATURES.picture(tone(1000, 0.5, rate_hz=16_000))
        assert short[0, :20].max() > 200 and not short[0, 26:].any()

    def test_bands_peak_at_one_and_overlap_to_one(self) -> None:
        weights = filters(16_000, 512, 40)
        assert weights.shape == (257, 40) and weights.max() <= 1
        inner = weights.sum(axis=1)[10:230]  # between the middles of the first and the last band
        assert np.allclose(inner, 1, atol=1e-5)

    @pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float32])
    def test_all_sample_formats_give_the_same_wave(self, dtype: type, tmp_path: Path) -> None:
        wave = tone(440, 0.1, 16_000)
        scale = {np.uint8: 127, np.int16: 32767, np.int32: 2**31 - 128, np.float32: 1}[dtype]
        wavfile.write(tmp_path / "x.wav", 16_000, (wave * scale + (128 if dtype is np.uint8 else 0)).astype(dtype))
        assert np.allclose(FEATURES.read(tmp_path / "x.wav"), wave, atol=0.016)

    def test_two_channels_are_averaged(self, tmp_path: Path) -> None:
        wavfile.write(tmp_path / "x.wav", 16_000, np.stack([np.full(99, 0.5), np.full(99, 0.1)], 1).astype(np.float32))
        assert np.allclose(FEATURES.read(tmp_path / "x.wav"), 0.3)


class TestSplits:
    def test_names_fall_where_the_published_function_puts_them(self) -> None:
        assert {which_part(Path(f"{name}_nohash_{take}.wav")) for name in VAL for take in (0, 3)} == {"val"}
        assert {which_part(Path(f"bed/{name}_nohash_1.wav")) for name in TEST} == {"test"}
        assert {which_part(Path(f"{name}_nohash_0.wav")) for name in TRAIN} == {"train"}

    def test_by_hash_where_there_are_no_lists(self, tmp_path: Path) -> None:
        data = speech_commands(folder=recorded(tmp_path, no=300, yes=900), **FAST)
        assert (data.classes, data.input_shape) == (("no", "yes"), (1, 8, 8))
        assert (len(data.train), len(data.val), len(data.test)) == (6, 4, 4)
        low, high = (data.val.images[data.val.labels == label].mean(axis=(0, 1, 2)).argmax() for label in (0, 1))
        assert low < high

    def test_lists_are_honoured(self, tmp_path: Path) -> None:
        folder = recorded(tmp_path, no=300, yes=900)
        name = f"{TRAIN[0]}_nohash_0.wav"
        (tmp_path / "validation_list.txt").write_text(f"no/{name}\nyes/{name}\n")
        (tmp_path / "testing_list.txt").write_text(f"no/{TRAIN[1]}_nohash_0.wav\nyes/{TRAIN[1]}_nohash_0.wav\n")
        data = speech_commands(folder=folder, **FAST)
        assert (len(data.train), len(data.val), len(data.test)) == (10, 2, 2)
        (tmp_path / "testing_list.txt").unlink()
        with pytest.raises(ConfigError, match=r"has one of validation_list\.txt and testing_list\.txt"):
            speech_commands(folder=folder, **FAST)

    def test_other_words_and_silence_are_classes_as_large_as_a_keyword(self, tmp_path: Path) -> None:
        folder = recorded(tmp_path, noise=True, no=300, yes=900, up=500, down=700)
        data = speech_commands(folder=folder, keywords=("yes", "no"), unknown=True, silence=True, **FAST)
        assert data.classes == ("yes", "no", "_unknown_", "_silence_")
        assert np.bincount(data.train.labels).tolist() == [3] * 4
        assert np.bincount(opened(data).labels).tolist() == [2] * 4
        again = speech_commands(folder=folder, keywords=("yes", "no"), unknown=True, silence=True, **FAST)
        assert (again.train.images == data.train.images).all()

    def test_no_split_hears_the_noise_of_another(self, tmp_path: Path) -> None:
        recorded(tmp_path, noise=True)
        features = LogMel(**FAST, resample=False)
        rng = np.random.default_rng(0)

        def heard(part: Any) -> list[Clip]:
            return _noise(tmp_path, part, 50, features, rng)

        assert all(clip.start_s + 1 <= 9.6 for clip in heard("train"))
        assert all(9.6 <= clip.start_s and clip.start_s + 1 <= 10.8 + 1e-9 for clip in heard("val"))
        assert all(10.8 <= clip.start_s and clip.start_s + 1 <= 12 + 1e-9 for clip in heard("test"))

    def test_max_train_leaves_val_and_test_alone(self, tmp_path: Path) -> None:
        data = speech_commands(folder=recorded(tmp_path, no=300, yes=900), max_train=4, **FAST)
        assert (len(data.train), len(data.val), len(data.test)) == (4, 4, 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keywords": ("ye",)}, r"unknown keyword 'ye': did you mean 'yes'\?"),
        ({"silence": True}, r"has no folder _background_noise_"),
        ({"unknown": True}, r"class '_unknown_' has none"),
        ({"mels": 100, "frame_ms": 20, "hop_ms": 20}, r"dataset\.mels=100 is too many for frames of 20 ms"),
        ({"mels": 10**9}, r"mels 1 to 256.*found 4000, 1000000000"),
        ({"rate_hz": 1}, r"rate_hz 4000 to 192000"),
        ({"hop_ms": 0}, r"1 <= hop_ms <= frame_ms <= 1000"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        speech_commands(folder=recorded(tmp_path, no=300, yes=900), **{**FAST, **options})


def header(rate_hz: int = RATE_HZ, data_bytes: int = 8, channels: int = 1, bits: int = 16) -> bytes:
    """A wav file of four samples whose header claims other things."""
    form = struct.pack("<HHIIHH", 1, channels, rate_hz, rate_hz * 2, channels * bits // 8, bits)
    body = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", data_bytes) + bytes(8)
    return b"RIFF" + struct.pack("<I", len(body)) + body


class TestHostileFiles:
    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (header(8000), r"bad\.wav is at 8000 Hz, wanted 4000: --set dataset\.resample=true"),
            (header(0), r"a rate of 0 Hz"),
            (header(2**31 - 1), r"a rate of 2147483647 Hz"),
            (header()[:-3], r"cut, at 49 bytes"),
            (header(channels=0), r"no whole wav file"),
            (header(bits=3), r"no whole wav file"),
            (header(data_bytes=0)[:-8].replace(struct.pack("<I", 44), struct.pack("<I", 36)), r"no (sound|whole wav)"),
            (b"", r"no whole wav file"),
            (b"RIFF", r"no whole wav file"),
            (b"not sound at all, but long enough to look like it", r"no whole wav file"),
        ],
    )
    @pytest.mark.filterwarnings("error")
    def test_end_in_one_error_that_names_the_file(self, content: bytes, words: str, tmp_path: Path) -> None:
        folder = recorded(tmp_path, no=300, yes=900)
        (tmp_path / "no" / "bad.wav").write_bytes(content)
        with pytest.raises(ConfigError, match=r"bad\.wav") as caught:
            speech_commands(folder=folder, **FAST)
        assert caught.match(words)

    def test_a_length_in_the_file_takes_no_memory(self, tmp_path: Path) -> None:
        (tmp_path / "x.wav").write_bytes(header(data_bytes=2**32 - 2))
        assert len(LogMel(**FAST, resample=False).read(tmp_path / "x.wav")) == 4

    @pytest.mark.parametrize("samples", [np.array([0, np.nan, 1], np.float32), np.array([0, 1e300])])
    @pytest.mark.filterwarnings("error")
    def test_values_that_are_not_finite(self, samples: NDArray[Any], tmp_path: Path) -> None:
        wavfile.write(tmp_path / "bad.wav", RATE_HZ, samples)
        with pytest.raises(ConfigError, match=r"bad\.wav: no sound in it, or values that are not finite"):
            LogMel(**FAST, resample=False).read(tmp_path / "bad.wav")

    def test_a_recording_of_another_kind_is_not_left_out_unsaid(self, tmp_path: Path) -> None:
        folder = recorded(tmp_path, no=300, yes=900)
        (tmp_path / "no" / "notes.txt").write_text("no sound, and no harm")
        assert len(speech_commands(folder=folder, **FAST).train) == 6
        (tmp_path / "no" / "more.FLAC").write_bytes(b"fLaC")
        with pytest.raises(ConfigError, match=r"no/more\.FLAC: wanted \.wav: convert it, or remove it"):
            speech_commands(folder=folder, **FAST)

    def test_a_link_out_of_the_folder(self, tmp_path: Path) -> None:
        folder = recorded(tmp_path / "data", no=300, yes=900)
        write(tmp_path / "secret.wav", tone(100))
        (tmp_path / "data" / "no" / "a.wav").symlink_to(tmp_path / "secret.wav")
        with pytest.raises(ConfigError, match=r"no/a\.wav is a link out of"):
            speech_commands(folder=folder, **FAST)

    def test_a_speaker_that_only_some_splits_have(self, tmp_path: Path) -> None:
        write(tmp_path / "no" / "0132a06d_nohash_0.wav", tone(300))
        write(tmp_path / "yes" / "0132a06d_nohash_0.wav", tone(900))
        with pytest.raises(ConfigError, match=r"no clip of no, yes falls into the val split: add recordings"):
            speech_commands(folder=str(tmp_path), **FAST)

    def test_a_folder_without_words(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="has no folder for a word"):
            speech_commands(folder=str(tmp_path), **FAST)

    def test_noise_that_is_too_short(self, tmp_path: Path) -> None:
        folder = recorded(tmp_path, no=300, yes=900)
        write(tmp_path / "_background_noise_" / "hum.wav", tone(50, 9.0))
        with pytest.raises(ConfigError, match=r"wanted a recording of ten seconds or more, found none"):
            speech_commands(folder=folder, silence=True, **FAST)


def test_another_rate_is_converted_where_that_is_wanted(tmp_path: Path) -> None:
    write(tmp_path / "x.wav", tone(440, rate_hz=44_100), 44_100)
    wave = FEATURES.replace(resample=True).read(tmp_path / "x.wav")
    assert len(wave) == 16_000
    assert np.allclose(wave[500:-500], tone(440, rate_hz=16_000)[500:-500], atol=0.01)


def test_a_second_run_reads_the_pictures_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "KEEP_S", -1.0)
    folder = recorded(tmp_path / "data", no=300, yes=900)
    first: Split = speech_commands(folder=folder, **FAST).train
    monkeypatch.setattr(LogMel, "read", lambda *_: pytest.fail("read again"))
    assert (speech_commands(folder=folder, **FAST).train.images == first.images).all()


def test_a_word_is_its_folder_however_deep_a_recording_lies(tmp_path: Path) -> None:
    folder = recorded(tmp_path, yes=900, no=300)
    plain = speech_commands(folder=folder, keywords=("yes",), unknown=True, **FAST)
    for number, speaker in enumerate(TRAIN):
        write(tmp_path / "yes" / "takes" / f"{speaker}_nohash_{number + 1}.wav", tone(900))
    deep = speech_commands(folder=folder, keywords=("yes",), unknown=True, **FAST)
    assert np.bincount(plain.train.labels).tolist() == [3, 3]  # yes, another word
    assert np.bincount(deep.train.labels).tolist() == [6, 3]
