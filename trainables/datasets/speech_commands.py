"""Spoken words in wav files, in the layout of Google's Speech Commands: keyword spotting on log-mel pictures."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import scipy

from automcu_ray.core.errors import ConfigError, unknown_name
from automcu_ray.signals import front_end, spectrum
from backends.source_fingerprint import digest
from trainables.datasets import log_mel
from trainables.datasets.base import Dataset, Images, Split, assemble, check_memory, data_folder, pick
from trainables.datasets.files import class_folders, files_below
from trainables.datasets.log_mel import LogMel
from trainables.datasets.prepared import fingerprint, in_threads, kept

NOISE, UNKNOWN, SILENCE = "_background_noise_", "_unknown_", "_silence_"
OTHER_SOUNDS = (".flac", ".mp3", ".ogg", ".opus", ".m4a", ".aac", ".aif", ".aiff")
LISTS = {"val": "validation_list.txt", "test": "testing_list.txt"}
PERCENT = 10  # of the speakers, for validation and for test each
_HASHES = 1 << 27
# Shares of each noise file: what one split has heard of it, no other hears.
NOISE_PARTS = {"train": (0.0, 0.8), "val": (0.8, 0.9), "test": (0.9, 1.0)}
Part = Literal["train", "val", "test"]


class Clip(NamedTuple):
    """A second of a file from `start_s` on, at `volume`."""

    path: Path
    start_s: float = 0.0
    volume: float = 1.0


def speech_commands(
    *,
    folder: str = "speech_commands",
    keywords: tuple[str, ...] = (),
    unknown: bool = False,
    silence: bool = False,
    rate_hz: int = 16_000,
    resample: bool = False,
    mels: int = 40,
    frame_ms: float = 30.0,
    hop_ms: float = 20.0,
    split_seed: int = 0,
    max_train: int | None = None,
) -> Dataset:
    """Return words as pictures (1, frames, mels), 1x49x40 unless set otherwise, from `<folder>/<word>/*.wav`.

    Classes are `keywords` (all words unless given), then `_unknown_` (other words) and `_silence_` (noise from
    `_background_noise_`, at any volume), each with as many clips as a keyword has on average. Splits are those of
    validation_list.txt and testing_list.txt; without them, those of the layout's hash of the speaker's name.
    `split_seed` draws unknown words, noise, and which `max_train` training clips are kept.

    Raises:
        ConfigError: no such folder or word, a damaged wav file or one at another rate, a class that a split lacks.
    """
    root = data_folder(folder)
    features = LogMel(rate_hz=rate_hz, mels=mels, frame_ms=frame_ms, hop_ms=hop_ms, resample=resample)
    features.check()
    words = [path.name for path in class_folders(root)]
    if not words:
        raise ConfigError(f"{root} has no folder for a word: put recordings into {root}/<word>/*.wav.")
    for word in keywords:
        if word not in words:
            raise unknown_name("keyword", word, words, of=str(root))
    wanted = keywords or words
    names = [*wanted, *([UNKNOWN] if unknown else []), *([SILENCE] if silence else [])]
    rng = np.random.default_rng(split_seed)
    splits = {}
    for part, files in _by_part(root, words).items():
        chosen = _chosen(root, part, files, wanted, names, features, rng)
        limit = max_train if part == "train" else None
        rows = pick(np.array([label for _, label in chosen]), limit, split_seed, "dataset.max_train")
        splits[part] = _heard([chosen[row] for row in rows], features, f"{root}, {part}")
    return assemble(
        root.name,
        names,
        splits["train"],
        val=splits["val"],
        test=splits["test"],
        val_share=0,
        split_seed=split_seed,
        front_end=features.window,
    )


def which_part(path: Path) -> Part:
    """Return the split of a file by its name alone: all recordings of a speaker are in one.

    Source: function which_set in the README of Speech Commands (Warden 2018, arXiv:1804.03209), with 10 % for
    validation and for test each.
    """
    speaker = path.name.partition("_nohash_")[0]
    percent = int(hashlib.sha1(speaker.encode()).hexdigest(), 16) % _HASHES * (100 / (_HASHES - 1))
    return "val" if percent < PERCENT else "test" if percent < 2 * PERCENT else "train"


def _by_part(root: Path, words: Sequence[str]) -> dict[Part, list[Path]]:
    """Return the files of all words, split."""
    listed: dict[str, Part] = {}
    lists = {part: root / name for part, name in LISTS.items()}
    present = [path.is_file() for path in lists.values()]
    if any(present) and not all(present):
        raise ConfigError(f"{root} has one of {' and '.join(LISTS.values())}: put the other one there, or remove both.")
    for part in ("val", "test") if all(present) else ():
        listed |= dict.fromkeys(lists[part].read_text(errors="replace").split(), part)
    parts: dict[Part, list[Path]] = {"train": [], "val": [], "test": []}
    for word in words:
        for path in files_below(root / word, (".wav",), root, refused=OTHER_SOUNDS):
            name = path.relative_to(root).as_posix()
            parts[listed.get(name, "train") if listed else which_part(path)].append(path)
    return parts


def _chosen(
    root: Path,
    part: Part,
    files: Sequence[Path],
    wanted: Sequence[str],
    names: Sequence[str],
    features: LogMel,
    rng: np.random.Generator,
) -> list[tuple[Clip, int]]:
    """Return the clips of one split with their labels, by class."""
    label = {name: number for number, name in enumerate(names)}
    words = [path.relative_to(root).parts[0] for path in files]
    known = [(Clip(path), label[word]) for path, word in zip(files, words, strict=True) if word in wanted]
    average = round(len(known) / len(wanted))
    if UNKNOWN in label:
        others = [path for path, word in zip(files, words, strict=True) if word not in wanted]
        drawn = rng.permutation(len(others))[:average]
        known += [(Clip(others[index]), label[UNKNOWN]) for index in np.sort(drawn)]
    if SILENCE in label:
        known += [(clip, label[SILENCE]) for clip in _noise(root, part, average, features, rng)]
    if not known:
        raise ConfigError(f"{root}: no clip of {', '.join(wanted)} falls into the {part} split: add recordings.")
    return known


def _noise(root: Path, part: Part, count: int, features: LogMel, rng: np.random.Generator) -> list[Clip]:
    """Return seconds of the noise files, from the stretch of each that belongs to a split."""
    if not (root / NOISE).is_dir():
        raise ConfigError(
            f"{root} has no folder {NOISE}, from which class {SILENCE} is cut: --set dataset.silence=false."
        )
    files = files_below(root / NOISE, (".wav",), root, refused=OTHER_SOUNDS)
    lengths_s = {path: len(features.read(path)) / features.rate_hz for path in files}
    begin, end = NOISE_PARTS[part]
    long = [path for path in files if lengths_s[path] * (end - begin) >= 1]
    if not long:
        raise ConfigError(f"{root / NOISE}: wanted a recording of ten seconds or more, found none: add one.")
    clips = []
    for _ in range(count):
        path = long[rng.integers(len(long))]
        start_s = rng.uniform(begin * lengths_s[path], end * lengths_s[path] - 1)
        clips.append(Clip(path, float(start_s), float(rng.uniform())))
    return clips


def _heard(chosen: Sequence[tuple[Clip, int]], features: LogMel, what: str) -> Split:
    """Return clips as pictures with their labels."""
    noises = {clip.path: features.read(clip.path) for clip, _ in chosen if NOISE in clip.path.parts}
    prints = {path: fingerprint(path) for path in dict.fromkeys(clip.path for clip, _ in chosen)}

    def picture(clip: Clip) -> Images:
        wave = noises[clip.path] if clip.path in noises else features.read(clip.path)
        return features.picture(wave[int(clip.start_s * features.rate_hz) :] * np.float32(clip.volume))

    def make() -> Images:
        first = picture(chosen[0][0])
        check_memory(what, first.nbytes * len(chosen))
        return np.stack(list(in_threads([clip for clip, _ in chosen], picture, f"hearing {what}")))

    code = digest(Path(__file__), log_mel, front_end, spectrum)
    key = ([(prints[clip.path], clip[1:]) for clip, _ in chosen], features, code, scipy.__version__)
    return Split(kept(key, make), np.array([label for _, label in chosen], np.int64))
