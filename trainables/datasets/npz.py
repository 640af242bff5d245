"""Arrays in a .npz file: images of any channels, height and width, with their labels."""

import lzma
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automcu_ray.core.errors import ConfigError
from trainables.datasets.base import Dataset, Split, assemble, check_memory, data_folder, in_short, numbered
from trainables.datasets.targets import as_values, assemble_values

_BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError)
PAIRS = {"train": ("images", "labels"), "val": ("val_images", "val_labels"), "test": ("test_images", "test_labels")}


def npz(
    *, folder: str, file: str = "data.npz", val_share: float = 0.15, test_share: float = 0.2, split_seed: int = 0
) -> Dataset:
    """Return the arrays `images` (N, C, H, W) or (N, H, W) uint8 and `labels` (N,) of `<folder>/<file>`.

    `val_images` with `val_labels`, and `test_images` with `test_labels`, are splits of their own where the file has
    them; else they are cut from `images`, stratified, by `split_seed`. Sensor windows are images too: (N, C, 1, time),
    scaled to 0 to 255. With `targets` (N,) or (N, targets) in place of `labels`, and `val_targets` and `test_targets`,
    these numbers are estimated.

    Raises:
        ConfigError: no such file, no such arrays, arrays of another type or shape, square images with their channels
            last, or pickled objects.
    """
    path = data_folder(folder) / file
    if not path.is_file():
        raise ConfigError(f"no file {path}: set dataset.file to a .npz file in that folder.")
    values = "targets" in _names(path)
    kind = "targets" if values else "labels"
    splits = {where: _split(path, *(name.replace("labels", kind) for name in pair)) for where, pair in PAIRS.items()}
    whole = splits["train"]
    if whole is None:
        raise ConfigError(f"{path} has no array 'images': save it by numpy.savez(file, images=..., labels=...).")
    about: dict[str, Any] = {"val": splits["val"], "test": splits["test"], "split_seed": split_seed}
    about |= {"val_share": val_share, "test_share": test_share}
    if values:
        count = whole.labels.shape[1]
        names = ["target"] if count == 1 else [f"target_{number}" for number in range(1, count + 1)]
        return assemble_values(path.stem, names, whole, **about)
    return assemble(path.stem, numbered(whole.labels), whole, **about)


def _names(path: Path) -> set[str]:
    """Return the names of a file's arrays."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}
    except (OSError, ValueError, EOFError, NotImplementedError, RuntimeError, *_BROKEN) as error:
        raise ConfigError(f"{path} cannot be read as arrays in a zip file: {in_short(error)}.") from error


def _split(path: Path, images: str, labels: str) -> Split | None:
    """Return the split of two arrays, or None where the file has neither."""
    names = _names(path)
    try:
        with zipfile.ZipFile(path) as archive:
            if not names & {images, labels}:
                return None
            if missing := {images, labels} - names:
                raise ConfigError(f"{path} has no array {min(missing)!r}; found {', '.join(sorted(names)[:9])}.")
            pixels, numbers = _array(archive, path, images), _array(archive, path, labels)
    except (OSError, ValueError, EOFError, NotImplementedError, RuntimeError, *_BROKEN) as error:
        raise ConfigError(f"{path} cannot be read as arrays in a zip file: {in_short(error)}.") from error
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    if pixels.ndim == 4 and pixels.shape[1] == pixels.shape[2] > 4 and pixels.shape[3] in (1, 3, 4):
        raise ConfigError(
            f"{path}: array {images!r} should be N x C x H x W, and {' x '.join(map(str, pixels.shape))} looks like "
            f"N x H x W x C: save {images}.transpose(0, 3, 1, 2)."
        )
    if labels.endswith("targets"):
        return Split(pixels, as_values(numbers, f"{path}, array {labels!r}"))
    return Split(pixels, numbers.astype(np.int64) if numbers.dtype.kind in "iu" else numbers)


def _array(archive: zipfile.ZipFile, path: Path, name: str) -> NDArray[Any]:
    """Return one array; nothing is unpickled, and no more memory is taken than the zip file's directory admits to."""
    info = archive.getinfo(f"{name}.npy")
    check_memory(f"{path}, array {name!r}", info.file_size)
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(file)
        values = info.file_size - file.tell()
    if dtype.hasobject:
        raise ConfigError(f"{path}: array {name!r} holds pickled objects, which are never loaded: save plain numbers.")
    if any(extent < 0 for extent in shape) or int(np.prod(shape, dtype=object)) * dtype.itemsize != values:
        raise ConfigError(f"{path}: array {name!r} of shape {shape} and type {dtype} is cut: {values} bytes are there.")
    with archive.open(info) as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return array
