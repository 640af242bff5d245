"""What a data set is: train and validation splits of uint8 images, and a sealed test split."""

import functools
import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.learning import Kind, Target
from automcu_ray.problem.task import Form
from automcu_ray.records.events import TestRead
from automcu_ray.records.journal import Repository
from automcu_ray.signals.front_end import FrontEnd, Samples

Images = NDArray[np.uint8]  # (N, channels, height, width)
Labels = NDArray[Any]  # (N,) int64: classes, or 1 for anomalies; or (N, targets) float32: values in their units


@dataclass(frozen=True)
class Split:
    """Images (N, channels, height, width) uint8 and labels: (N,) int64, or (N, targets) float32."""

    images: Images
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)


class Sealed:
    """A test split: it opens for readers whose name is in the run's journal first, in the process that loaded it.

    It cannot be pickled, so nothing that is sent to a searcher's engine, a trial or a finalist can hold it.
    """

    def __init__(self, split: Split) -> None:
        self._split = split

    def __len__(self) -> int:
        return len(self._split)

    def open(self, reader: str, journal: Repository) -> Split:
        """Return the split, once the journal says who reads it (event `test_read`)."""
        journal.append(TestRead(reader=reader, images=len(self)))
        return self._split

    def mapped(self, change: Callable[[Split], Split]) -> "Sealed":
        """Return the split changed in one way that looks at nothing else, still sealed."""
        return Sealed(change(self._split))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a test split does not leave the process that loaded it: send train and val")


@dataclass(frozen=True)
class Dataset:
    """Train and validation for the search, test for the winner alone, once; `split_seed` is none of the run's seeds.

    Where images are made of samples, `front_end` says how, and `recording` is some that a board can be fed, (samples,
    channels), none of the test's. `notes` say what was done to the data. `classes` are none where labels are values:
    then `targets` say of what. Of data for anomaly detection they are "normal" and "anomaly", and training has no
    anomalies.
    """

    wants: ClassVar[Form] = "network"

    name: str
    classes: tuple[str, ...]
    train: Split
    val: Split
    test: Sealed
    split_seed: int
    front_end: FrontEnd | None = None
    recording: Samples | None = None
    notes: Mapping[str, str | int] = field(default_factory=dict)
    kind: Kind = "classification"
    targets: tuple[Target, ...] = ()

    @property
    def outputs(self) -> int:
        """How many outputs a network for these data has."""
        if self.kind == "anomaly":
            return math.prod(self.input_shape)
        return len(self.targets) if self.kind == "regression" else len(self.classes)

    @functools.cached_property
    def sha256(self) -> str:
        """Digest of all images and labels, as split; worked out for whoever asks, which tells nothing of the test."""
        found = hashlib.sha256()
        for split in (self.train, self.val, self.test._split):
            for array in (split.images, split.labels):
                found.update(repr(array.shape).encode())
                found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height, width of one image."""
        _, channels, height, width = self.train.images.shape
        return channels, height, width

    @property
    def about(self) -> dict[str, str | int]:
        """What a manifest says of the data: name, images in each split, the seed that split them, and a digest."""
        sizes = {"train": len(self.train), "val": len(self.val), "test": len(self.test)}
        return {"name": self.name, "split_seed": self.split_seed, **sizes, **self.notes, "sha256": self.sha256}


def assemble(
    name: str,
    classes: Sequence[str],
    train: Split,
    *,
    val: Split | None = None,
    test: Split | None = None,
    val_share: float,
    test_share: float = 0.0,
    split_seed: int,
    front_end: FrontEnd | None = None,
    recording: Samples | None = None,
    notes: Mapping[str, str | int] | None = None,
) -> Dataset:
    """Return a data set; what comes without split of its own is cut from `train`, stratified, by `split_seed` alone.

    Shares are of all that `train` holds at first. No split is left in the order of its classes: calibration and the
    board take the first images.

    Raises:
        ConfigError: labels, sizes or types that do not fit together, a class that a split lacks, too few images to cut.
    """
    for where, split in (("train", train), ("val", val), ("test", test)):
        if split is not None:
            _check(f"{name}, {where}", split, classes, train.images.shape[1:])
    of_rest = val_share
    if test is None:
        train, test = cut(train, test_share, split_seed, f"{name}: dataset.test_share={test_share:g}")
        of_rest = val_share / (1 - test_share)
    if val is None:
        train, val = cut(train, of_rest, split_seed, f"{name}: dataset.val_share={val_share:g}")
    for where, split in (("train", train), ("validation", val), ("test", test)):
        if len(classes) < 2:
            found = ", ".join(map(repr, classes)) or "none"
            raise ConfigError(f"{name}, {where} split: wanted two classes or more, found {found}.")
        if absent := set(range(len(classes))) - set(split.labels.tolist()):
            raise ConfigError(
                f"{name}, {where} split: class {classes[min(absent)]!r} has none of its {len(split)} examples, "
                f"{len(absent) - 1} more classes neither: add examples, or raise dataset.max_train, max_test or "
                "val_share where one is set."
            )
    train, val, test = (shuffled(split, split_seed) for split in (train, val, test))
    return Dataset(name, tuple(classes), train, val, Sealed(test), split_seed, front_end, recording, notes or {})


def cut(split: Split, share: float, seed: int, what: str) -> tuple[Split, Split]:
    """Return (rest, share of it): a stratified random cut that depends on the seed alone.

    Raises:
        ConfigError: no such share, or too few images in a class; the message starts with `what`.
    """
    rest, held = _cut(split.labels, share, seed, what)
    return Split(split.images[rest], split.labels[rest]), Split(split.images[held], split.labels[held])


def shuffled(split: Split, seed: int) -> Split:
    """Return a split whose classes lie in runs in a random order, by the seed alone; another one as it is.

    Runs: neighbours differ less than half as often as they do by chance.
    """
    by_chance = 1 - np.square(np.bincount(split.labels) / len(split)).sum()
    if np.count_nonzero(np.diff(split.labels)) >= len(split) * by_chance / 2:
        return split
    order = np.random.default_rng(seed).permutation(len(split))
    return Split(split.images[order], split.labels[order])


def pick(labels: Labels, limit: int | None, seed: int, what: str) -> NDArray[np.int64]:
    """Return which examples to keep, in order: all, or `limit` of them, each class by its share.

    Raises:
        ConfigError: fewer than one a class; the message starts with `what`.
    """
    if limit is None or limit >= len(labels):
        return np.arange(len(labels))
    _, kept = _cut(labels, limit, seed, f"{what}={limit}")
    return np.sort(kept)


def numbered(labels: Labels) -> tuple[str, ...]:
    """Return the names of classes that have none: "0" to the largest label in use, as far as that can be true."""
    top = int(labels.max(initial=0)) if labels.dtype.kind in "iu" else 0
    return tuple(str(number) for number in range(min(top, len(labels)) + 1))


def _cut(labels: Labels, held: float, seed: int, what: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    from sklearn.model_selection import train_test_split  # seconds to import: workers that train need it not

    try:
        rest, chosen = train_test_split(np.arange(len(labels)), test_size=held, random_state=seed, stratify=labels)
    except ValueError as error:
        _, counts = np.unique(labels, return_counts=True)
        raise ConfigError(
            f"{what} cannot be cut from {len(labels)} examples of {len(counts)} classes, the smallest of "
            f"{min(counts, default=0)}: both parts want one of each class. Add examples, or change that setting."
        ) from error
    return rest, chosen


def _check(where: str, split: Split, classes: Sequence[str], shape: tuple[int, ...]) -> None:
    """Refuse arrays that are no labelled images of one size; labels are 0 to one less than there are classes."""
    images, labels = split.images, split.labels
    if images.dtype != np.uint8 or images.ndim != 4 or 0 in images.shape:
        raise ConfigError(
            f"{where}: wanted uint8 images (N, C, H, W), found {images.dtype} {images.shape}: save pixels as 0 to 255."
        )
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != len(images):
        raise ConfigError(
            f"{where}: wanted one whole number as label for each of {len(images)} images, found {labels.dtype} "
            f"{labels.shape}."
        )
    if images.shape[1:] != shape:
        raise ConfigError(f"{where}: images must have the shape of the training images, {shape}; found {images.shape}.")
    wrong = np.flatnonzero((labels < 0) | (labels >= len(classes)))
    if len(wrong):
        raise ConfigError(
            f"{where}: labels must be 0 to {len(classes) - 1}, one for each class; found {labels[wrong[0]]} at row "
            f"{wrong[0]}, and {len(wrong) - 1} more: correct the labels or the list of classes."
        )


def check_memory(where: str, size_bytes: int) -> None:
    """Refuse a data set that would take more than a quarter of this machine's memory as arrays (copies need as much).

    Raises:
        ConfigError: it does; the message starts with `where`.
    """
    limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
    if size_bytes > limit:
        raise ConfigError(
            f"{where}: decoded it would take {size_bytes / 1e9:.1f} GB, more than a quarter of this machine's memory "
            f"({limit / 1e9:.1f} GB): make it smaller, by dataset.size or max_train where it has them."
        )


def in_short(error: BaseException) -> str:
    """Return what an error says on one line of at most 120 characters."""
    return " ".join(str(error).split())[:120]


def data_folder(name: str) -> Path:
    """Return the folder of a data set: a name under the first data folder that has it, or a path with a slash in it.

    Raises:
        ConfigError: none of them has it.
    """
    roots = data_roots()
    for root in roots:
        if (root / name).is_dir():
            return root / name
    if os.sep in name and Path(name).is_dir():  # a bare name is no path: which folder it meant would depend on luck
        return Path(name).resolve()
    raise ConfigError(
        f"no data folder {name!r} in {', '.join(str(root) for root in roots)}: "
        f"put it there, or point AUTOMCU_DATA or --set dataset.folder=PATH to it."
    )


def data_roots() -> list[Path]:
    """Return where data sets lie: $AUTOMCU_DATA, `data` here and in the checkout, and `shared/data` beside that.

    Here: in the working directory. An installed package has no checkout.
    """
    roots = [Path(os.environ["AUTOMCU_DATA"])] if os.environ.get("AUTOMCU_DATA") else []
    here = Path("data").absolute()
    code = Path(__file__).resolve().parents[2]  # the checkout, or site-packages
    checkout = [code / "data", code.parent / "shared" / "data"] if (code / "pyproject.toml").is_file() else []
    return list(dict.fromkeys([*roots, here, *checkout]))
