"""Encoded pictures as arrays: JPEG, PNG and the like from anywhere, each checked before it is decoded."""

import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, ImageOps

from automcu_ray.core.errors import ConfigError
from backends.source_fingerprint import digest
from trainables.datasets.base import Images, check_memory, in_short
from trainables.datasets.prepared import in_threads, kept

FORMATS = ("JPEG", "PNG", "BMP", "PPM", "WEBP")  # the only parsers of Pillow that strangers' bytes reach
MAX_PIXELS = 1 << 26  # of one picture: 8192x8192; more is taken for a decompression bomb
MAX_FILE_BYTES = 1 << 26
MAX_SIZE = 1024
_GREY, _COLOUR = ("1", "L", "LA"), ("P", "RGB", "RGBA", "CMYK", "YCbCr")  # I;16 and the like would lose bits

# Between its alarm and its refusal Pillow only warns; below, both are our own refusals.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def decode(
    names: Sequence[str], read: Callable[[int], bytes], *, size: int | None, source: object, what: str
) -> Images:
    """Return pictures as (N, C, H, W) uint8: one channel where all are grey, else RGB.

    Args:
        names: what messages call each picture.
        read: the bytes of one of them.
        size: the middle square of each is scaled to `size` x `size`; None wants them all alike.
        source: all that the bytes depend on, for the cache.
        what: what the progress bar calls them all.

    Raises:
        ConfigError: one is damaged, far too large, of an unknown kind, or not of the size of the first.
    """
    if size is not None and not 1 <= size <= MAX_SIZE:
        raise ConfigError(f"dataset.size wants 1 to {MAX_SIZE} pixels, found {size}.")
    if not names:
        raise ConfigError(f"{what}: no pictures there.")

    def make() -> Images:
        arrays: list[Images] = []
        decoded = in_threads(range(len(names)), lambda row: _pixels(names[row], read(row), size), f"decoding {what}")
        for name, array in zip(names, decoded, strict=True):
            if not arrays:
                check_memory(what, len(names) * array.nbytes)
            elif array.shape[:2] != arrays[0].shape[:2]:
                raise ConfigError(
                    f"pictures must share one size, found {_size(arrays[0])} ({names[0]}) and {_size(array)} ({name}): "
                    "--set dataset.size=32 takes the middle square of each, in 32x32 pixels."
                )
            arrays.append(array)
        height, width, _ = arrays[0].shape
        stacked = np.empty((len(arrays), max(array.shape[2] for array in arrays), height, width), np.uint8)
        for row, array in enumerate(arrays):
            stacked[row] = array.transpose(2, 0, 1)  # grey ones among coloured ones get three channels
        return stacked

    return kept((source, size, digest(Path(__file__)), PIL.__version__), make)


def _pixels(name: str, blob: bytes, size: int | None) -> Images:
    """Return one picture as (H, W, 1) or (H, W, 3)."""
    if not isinstance(blob, bytes) or len(blob) > MAX_FILE_BYTES:
        raise ConfigError(f"{name}: wanted a picture of at most {MAX_FILE_BYTES >> 20} MB, found none or a larger one.")
    try:
        picture = Image.open(io.BytesIO(blob), formats=FORMATS)
        if picture.width * picture.height > MAX_PIXELS:
            raise ConfigError(
                f"{name}: {picture.width}x{picture.height} pixels in {len(blob)} bytes, at most {MAX_PIXELS} are "
                "decoded: remove it, or make it smaller."
            )
        if picture.mode not in _GREY + _COLOUR:
            raise ConfigError(f"{name}: pixels of mode {picture.mode!r} are not 8 bits a channel; convert it to RGB.")
        mode = "L" if picture.mode in _GREY else "RGB"
        if size is not None:
            picture.draft(mode, (size, size))  # a large JPEG is decoded at an eighth, a quarter or half of its size
            scaled = ImageOps.fit(picture.convert(mode), (size, size), Image.Resampling.BILINEAR)
        pixels: Images = np.asarray(picture.convert(mode) if size is None else scaled)
    except ConfigError:
        raise
    except Exception as error:  # Pillow lets out whatever its parsers raise: OSError, SyntaxError, struct.error, ...
        why = "of another kind" if isinstance(error, PIL.UnidentifiedImageError) else in_short(error)
        raise ConfigError(
            f"{name}: not a picture that can be decoded ({len(blob)} bytes, {why}): remove or replace it; known are "
            f"{', '.join(FORMATS)}."
        ) from error
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def _size(array: Images) -> str:
    return f"{array.shape[1]}x{array.shape[0]}"
