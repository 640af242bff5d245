"""Images in Parquet, the layout of Hugging Face image data sets: columns image{bytes, path} and label."""

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image, UnidentifiedImageError

from automcu_ray.errors import ConfigError
from trainables.datasets.base import Dataset, Images, Split, cut, data_folder


def parquet_images(
    *,
    folder: str,
    train: str = "train.parquet",
    test: str = "test.parquet",
    val_share: float = 0.1,
    split_seed: int = 0,
    max_train: int | None = None,
    max_test: int | None = None,
) -> Dataset:
    """Return the images of two Parquet files; validation is cut from the training file, stratified.

    `max_train` and `max_test` keep the first so many rows (fewer to decode for a first look).

    Raises:
        ConfigError: no folder or file, a column missing, an image that cannot be read, or sizes that differ.
    """
    root = data_folder(folder)
    whole = _read(root / train, max_train)
    held = _read(root / test, max_test)
    if whole.images.shape[1:] != held.images.shape[1:]:
        raise ConfigError(f"{root}: train has images {whole.images.shape[1:]}, test {held.images.shape[1:]}.")
    classes = tuple(str(label) for label in range(int(whole.labels.max()) + 1))
    rest, val = cut(whole.images, whole.labels, val_share, split_seed)
    return Dataset(root.name, classes, rest, val, held)


def _read(path: Path, limit: int | None) -> Split:
    if not path.is_file():
        raise ConfigError(f"no file {path}: set dataset.train and dataset.test to Parquet files in that folder.")
    table = pq.read_table(path)
    missing = {"image", "label"} - set(table.column_names)
    if missing:
        raise ConfigError(f"{path} has no column {sorted(missing)[0]!r}; found {', '.join(table.column_names)}.")
    table = table.slice(0, limit)
    labels = table["label"].to_numpy().astype(np.int64)
    return Split(_decode(path, table["image"].combine_chunks().field("bytes").to_pylist()), labels)


def _decode(path: Path, blobs: list[bytes]) -> Images:
    images = []
    for row, blob in enumerate(blobs):
        try:
            pixels = np.asarray(Image.open(io.BytesIO(blob)))
        except (UnidentifiedImageError, OSError, TypeError) as error:
            raise ConfigError(f"{path} row {row}: not an image ({error}).") from error
        images.append(pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0))
    shapes = {image.shape for image in images}
    if len(shapes) != 1:
        raise ConfigError(f"{path}: images must share one size, found {sorted(shapes)[:3]}; resize them first.")
    return np.stack(images)
