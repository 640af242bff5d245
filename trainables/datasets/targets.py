"""Data sets whose labels are no classes: values to estimate, and examples of which only the normal ones are learnt."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from automcu_ray.core.errors import ConfigError, unknown_name
from automcu_ray.core.learning import Target
from automcu_ray.signals.front_end import FrontEnd, Samples
from trainables.datasets.base import Dataset, Sealed, Split

NAMES = ("normal", "anomaly")  # labels 0 and 1
LEAST = 2  # examples of a split: fewer have no spread
MOST_TARGETS = 64


def assemble_values(
    name: str,
    targets: Sequence[str],
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
    """Return a data set whose labels (N, targets) are values; splits that are missing are cut from `train` by chance.

    Shares are of all that `train` holds at first. All splits are in a random order: calibration and the board take the
    first images.

    Raises:
        ConfigError: images or values of another form, values that are not finite or all equal, too few examples.
    """
    parts = {"train": train, "val": val, "test": test}
    for where, split in parts.items():
        if split is not None:
            _check_values(f"{name}, {where}", split, targets, train.images.shape[1:])
    chance = np.random.default_rng(split_seed)
    order = chance.permutation(len(train))
    for where, share in (("test", test_share), ("val", val_share)):
        if parts[where] is None:
            count = round(share * len(train))
            parts[where], order = _rows(train, order[:count]), order[count:]
    parts["train"] = _rows(train, order)
    made = {where: split for where, split in parts.items() if split is not None}
    for where, split in made.items():
        if len(split) < LEAST:
            raise ConfigError(
                f"{name}, {where} split: {LEAST} examples or more are wanted, found {len(split)}: add examples, or "
                "change dataset.val_share or test_share."
            )
        if where != "train":
            made[where] = _rows(split, chance.permutation(len(split)))
    return Dataset(
        name,
        (),
        made["train"],
        made["val"],
        Sealed(made["test"]),
        split_seed,
        front_end,
        recording,
        notes or {},
        "regression",
        _described(f"{name}, train", targets, made["train"].labels),
    )


def as_values(labels: NDArray[np.generic], where: str) -> NDArray[np.float32]:
    """Return numbers (N,) or (N, targets) as labels (N, targets).

    Raises:
        ConfigError: they are no numbers, or of another form.
    """
    if labels.ndim not in (1, 2) or labels.dtype.kind not in "fiu":
        raise ConfigError(f"{where}: wanted numbers (N,) or (N, targets), found {labels.dtype} {labels.shape}.")
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused as not finite
        return np.ascontiguousarray(labels.reshape(len(labels), -1), np.float32)


def only_normal(data: Dataset, normal: Sequence[str]) -> Dataset:
    """Return data of classes as data for anomaly detection: training has the normal classes alone.

    In validation and test all other classes are anomalies. The test split stays sealed.

    Raises:
        ConfigError: data without classes, a class that they do not have, or no other class.
    """
    if data.kind != "classification" or not data.classes:
        raise ConfigError(f"normal: names classes of the data, and {data.name} has none: leave it out.")
    for name in normal:
        if name not in data.classes:
            raise unknown_name("class", name, list(data.classes), of=data.name)
    if set(normal) == set(data.classes):
        raise ConfigError("normal: some class of the data has to be left for anomalies, found all of them.")
    wanted = np.array([name in normal for name in data.classes])

    def marked(split: Split) -> Split:
        return Split(split.images, (~wanted[split.labels]).astype(np.int64))

    train = _rows(data.train, np.flatnonzero(wanted[data.train.labels]))
    return dataclasses.replace(
        data,
        classes=NAMES,
        train=marked(train),
        val=marked(data.val),
        test=data.test.mapped(marked),
        notes={**data.notes, "normal": ", ".join(normal), "left_out_of_training": len(data.train) - len(train)},
        kind="anomaly",
    )


def _rows(split: Split, rows: NDArray[np.int64]) -> Split:
    return Split(split.images[rows], split.labels[rows])


def _described(where: str, names: Sequence[str], values: NDArray[np.float32]) -> tuple[Target, ...]:
    """Return the targets with the figures of training values (N, targets)."""
    found = []
    for name, column in zip(names, values.astype(np.float64).T, strict=True):
        if not column.std() > 1e-9 * max(1.0, float(np.abs(column).max())):
            raise ConfigError(f"{where}: target {name!r} has the same value everywhere: there is nothing to learn.")
        about = {
            "mean": column.mean(),
            "deviation": column.std(),
            "trivial_mae": np.abs(column - np.median(column)).mean(),
        }
        found.append(Target(name=name, **{key: float(value) for key, value in about.items()}))
    return tuple(found)


def _check_values(where: str, split: Split, targets: Sequence[str], shape: tuple[int, ...]) -> None:
    images, labels = split.images, split.labels
    if images.dtype != np.uint8 or images.ndim != 4 or 0 in images.shape:
        raise ConfigError(
            f"{where}: wanted uint8 images (N, C, H, W), found {images.dtype} {images.shape}: save pixels as 0 to 255."
        )
    if images.shape[1:] != shape:
        raise ConfigError(f"{where}: images must have the shape of the training images, {shape}; found {images.shape}.")
    if not 1 <= len(targets) <= MOST_TARGETS or labels.shape != (len(images), len(targets)):
        raise ConfigError(
            f"{where}: wanted 1 to {MOST_TARGETS} values for each of {len(images)} images, found {labels.shape}."
        )
    if len(wrong := np.flatnonzero(~np.isfinite(labels).all(axis=1))):
        raise ConfigError(
            f"{where}: values must be finite numbers; found {labels[wrong[0]].tolist()} at row {wrong[0]}, and "
            f"{len(wrong) - 1} more: correct or leave out these rows."
        )
