"""Images in folders, one a class: the layout of torchvision's ImageFolder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from automcu_ray.core.errors import ConfigError
from trainables.datasets.base import Dataset, Split, assemble, data_folder, in_short, pick
from trainables.datasets.files import class_folders, files_below
from trainables.datasets.pictures import MAX_FILE_BYTES, decode
from trainables.datasets.prepared import fingerprint

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".webp")
OTHER_PICTURES = (".gif", ".tif", ".tiff", ".heic", ".avif")


def image_folder(
    *,
    folder: str,
    train: str = "train",
    val: str | None = "val",
    test: str | None = "test",
    size: int | None = None,
    val_share: float = 0.1,
    test_share: float = 0.2,
    split_seed: int = 0,
    max_train: int | None = None,
    max_test: int | None = None,
) -> Dataset:
    """Return the images of `<folder>/<class>/**`, or of `<folder>/train/<class>/**` with `val` and `test` beside it.

    Classes are folders in order of their names. A split that has no folder is cut from the others, stratified, by
    `split_seed`. `max_train` and `max_test` keep so many images, each class by its share.

    Raises:
        ConfigError: no folder, or none of another name that was asked for; one without images, links that lead out of
            it, damaged images, or sizes that differ where `size` is not given.
    """
    root = data_folder(folder)
    splits = (root / train).is_dir() and any(path.is_dir() for path in (root / train).iterdir())
    for split, name in (("train", train), ("val", val), ("test", test)):
        if name not in (None, split) and not (splits and (root / name).is_dir()):
            raise ConfigError(f"dataset.{split}={name}: wanted {root}/{train}/<class> and {root}/{name}/<class>.")
    top = root / train if splits else root
    classes = [path.name for path in class_folders(top)]
    whole = _read(top, classes, root, size, max_train, split_seed, "max_train")
    held = {
        split: _read(root / name, classes, root, size, max_test, split_seed, "max_test")
        for split, name in (("val", val), ("test", test))
        if splits and name and (root / name).is_dir()
    }
    cuts: dict[str, Any] = {"val_share": val_share, "test_share": test_share, "split_seed": split_seed}
    return assemble(root.name, classes, whole, val=held.get("val"), test=held.get("test"), **cuts)


def _read(
    top: Path, classes: Sequence[str], root: Path, size: int | None, limit: int | None, seed: int, option: str
) -> Split:
    found = [path.name for path in class_folders(top)]
    if len(found) < 2 or found != list(classes):
        raise ConfigError(
            f"{top}: wanted a folder for each class, two at least ({', '.join(classes[:5])}, ...); found "
            f"{', '.join(found[:5]) or 'none'}."
        )
    by_class = [files_below(top / name, SUFFIXES, root, refused=OTHER_PICTURES) for name in classes]
    labels = np.repeat(np.arange(len(classes)), [len(files) for files in by_class])
    files = [path for files in by_class for path in files]
    kept = pick(labels, limit, seed, f"dataset.{option}")
    chosen = [files[index] for index in kept]
    prints = [fingerprint(path) for path in chosen]
    images = decode(
        [str(path) for path in chosen], lambda row: _bytes(chosen[row]), size=size, source=prints, what=str(top)
    )
    return Split(images, labels[kept])


def _bytes(path: Path) -> bytes:
    """Return a file, or one byte more than a picture may have."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({in_short(error)}): make it readable, or remove it.") from error
