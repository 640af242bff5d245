"""Spoken words of one's own: folders of wav files at any rate and length, a word each."""

import re
from pathlib import Path
from typing import Literal

import numpy as np
import scipy

from automcu_ray.core.errors import ConfigError, unknown_name
from automcu_ray.signals import front_end, spectrum
from backends.source_fingerprint import digest
from trainables.datasets import log_mel
from trainables.datasets.base import Dataset, Images, Split, assemble, check_memory, data_folder, pick
from trainables.datasets.files import class_folders, files_below
from trainables.datasets.log_mel import LogMel, Wave, as_samples
from trainables.datasets.prepared import fingerprint, in_threads, kept

OTHER_SOUNDS = (".flac", ".mp3", ".ogg", ".opus", ".m4a", ".aac", ".aif", ".aiff")
_RECORDING_S = 10.0  # of sounds one after the other, for the board's stream


def wav_folders(
    *,
    folder: str,
    keywords: tuple[str, ...] = (),
    val: str | None = None,
    test: str | None = None,
    rate_hz: int = 16_000,
    seconds: float = 1.0,
    place: Literal["centre", "start"] = "centre",
    features: Literal["log_mel", "mfcc"] = "log_mel",
    mels: int = 40,
    coefficients: int = 13,
    frame_ms: float = 30.0,
    hop_ms: float = 20.0,
    val_share: float = 0.15,
    test_share: float = 0.2,
    split_seed: int = 0,
    max_train: int | None = None,
) -> Dataset:
    """Return words as pictures (1, frames, mels or coefficients) from `<folder>/<word>/*.wav`.

    Recordings are converted to `rate_hz`, then padded with silence, or cut, to `seconds`: at both ends (`centre`) or at
    the end (`start`). `test` and `val` are regular expressions searched for in file names: what matches is that split,
    so speakers or takes can be held out; `test` goes first. Without one, a share is cut from the rest, stratified.
    Classes are the `keywords`, or all folders.

    Raises:
        ConfigError: no such folder or word, a damaged file, a pattern that is none or matches nothing.
    """
    root = data_folder(folder)
    listen = LogMel(
        rate_hz=rate_hz,
        mels=mels,
        frame_ms=frame_ms,
        hop_ms=hop_ms,
        resample=True,
        seconds=seconds,
        features=features,
        coefficients=coefficients,
    )
    listen.check()
    words = [path.name for path in class_folders(root)]
    if not words:
        raise ConfigError(f"{root} has no folder for a word: put recordings into {root}/<word>/*.wav.")
    for word in keywords:
        if word not in words:
            raise unknown_name("keyword", word, words, of=str(root))
    classes = keywords or tuple(words)
    files = [
        (path, label)
        for label, word in enumerate(classes)
        for path in files_below(root / word, (".wav",), root, refused=OTHER_SOUNDS)
    ]
    parts = _by_pattern(files, {"test": test, "val": val}, root)
    rows = pick(np.array([label for _, label in parts["train"]], np.int64), max_train, split_seed, "dataset.max_train")
    parts["train"] = [parts["train"][row] for row in rows]
    splits = {part: _heard(chosen, listen, place, f"{root}, {part}") for part, chosen in parts.items()}
    heard = parts.get("val") or parts["train"]
    order = np.random.default_rng(split_seed).permutation(len(heard))
    return assemble(
        root.name,
        classes,
        splits["train"],
        val=splits.get("val"),
        test=splits.get("test"),
        val_share=val_share,
        test_share=test_share,
        split_seed=split_seed,
        front_end=listen.window,
        recording=listen.joined([heard[index][0] for index in order], _RECORDING_S),
    )


def _by_pattern(
    files: list[tuple[Path, int]], patterns: dict[str, str | None], root: Path
) -> dict[str, list[tuple[Path, int]]]:
    """Return the files of each split that has a pattern, and of training."""
    parts, rest = {}, files
    for part, pattern in patterns.items():
        if pattern is None:
            continue
        try:
            wanted = re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"dataset.{part}={pattern!r} is no regular expression: {error}.") from error
        parts[part] = [file for file in rest if wanted.search(file[0].name)]
        rest = [file for file in rest if not wanted.search(file[0].name)]
        if not parts[part] or not rest:
            many = "none" if not parts[part] else "all"
            raise ConfigError(
                f"dataset.{part}={pattern!r} matches {many} of the names that are left below {root}, such as "
                f"{files[0][0].name}: it should match those of the {part} split."
            )
    return {"train": rest, **parts}


def placed(wave: Wave, count: int, place: str) -> Wave:
    """Return a wave padded with silence, or cut, to so many samples: at both ends, or at the end."""
    spare = (count - len(wave)) // 2 if place == "centre" else 0
    found = np.zeros(count, np.float32)
    cut = wave[max(0, -spare) :][:count]
    found[max(0, spare) :][: len(cut)] = cut
    return found


def _heard(chosen: list[tuple[Path, int]], listen: LogMel, place: str, what: str) -> Split:
    """Return recordings as pictures with their labels."""
    count = round(listen.rate_hz * listen.seconds)

    def picture(path: Path) -> Images:
        return listen.window.window(as_samples(placed(listen.read(path), count, place)))

    def make() -> Images:
        first = picture(chosen[0][0])
        check_memory(what, first.nbytes * len(chosen))
        return np.stack(list(in_threads([path for path, _ in chosen], picture, f"hearing {what}")))

    code = digest(Path(__file__), log_mel, front_end, spectrum)
    key = ([fingerprint(path) for path, _ in chosen], listen, place, code, scipy.__version__)
    return Split(kept(key, make), np.array([label for _, label in chosen], np.int64))
