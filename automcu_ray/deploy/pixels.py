"""What a network takes for a pixel: the values that it was trained on, as a scale and an offset of ours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from automcu_ray.core.errors import ConfigError

if TYPE_CHECKING:  # `automcu deploy --help` names the forms, and a command starts without numpy
    import numpy as np
    import numpy.typing as npt

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_NUMBERS = r"-?\d{1,6}(?:\.\d{1,12})?(?:,-?\d{1,6}(?:\.\d{1,12})?){0,7}"


@dataclass(frozen=True)
class Pixels:
    """A network's own value of a pixel of 0 to 255: `(pixel / scale - mean) / std`, one mean and std or one a channel.

    Ours is `(pixel - 128) / 128`: `symmetric`.
    """

    name: str
    scale: float
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __str__(self) -> str:
        return self.name

    @property
    def ours(self) -> bool:
        """Whether the network takes what all networks of this project take."""
        return (self.scale, self.mean, self.std) == (128.0, (1.0,), (1.0,))

    def fits(self, channels: int) -> bool:
        """Return whether it has one mean and deviation, or as many as an image has channels."""
        return {len(self.mean), len(self.std)} <= {1, channels}

    def of(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Return the network's own values for images (N, channels, height, width), in float32."""
        import numpy as np

        mean, std = (np.array(numbers, np.float32).reshape(1, -1, 1, 1) for numbers in (self.mean, self.std))
        return ((images.astype(np.float32) / np.float32(self.scale) - mean) / std).astype(np.float32)

    def affine(self, channels: int) -> tuple[list[float], list[float]]:
        """Return slope and offset of each channel: the network's value is `slope * ours + offset`.

        Raises:
            ConfigError: means or deviations for another number of channels.
        """
        if not self.fits(channels):
            raise ConfigError(f"--pixels {self.name}: one number, or one for each of {channels} channels, is wanted.")
        means, stds = (numbers * (channels // len(numbers)) for numbers in (self.mean, self.std))
        slopes = [128 / self.scale / std for std in stds]
        return slopes, [(128 / self.scale - mean) / std for mean, std in zip(means, stds, strict=True)]


KNOWN = {
    "symmetric": Pixels("symmetric", 128.0, (1.0,)),
    "unit": Pixels("unit", 255.0),
    "bytes": Pixels("bytes", 1.0),
    "centred": Pixels("centred", 255.0, (0.5,), (0.5,)),
    "imagenet": Pixels("imagenet", 255.0, *IMAGENET),
}


def parse(text: str) -> Pixels:
    """Return what a name, or MEAN/STD of pixels from 0 to 1, stands for: `0.1307/0.3081`, `0.5,0.5,0.5/0.2,0.2,0.2`.

    Raises:
        ConfigError: neither.
    """
    if text in KNOWN:
        return KNOWN[text]
    if not re.fullmatch(f"{_NUMBERS}/{_NUMBERS}", text):
        raise ConfigError(f"--pixels wants {', '.join(KNOWN)}, or MEAN/STD such as 0.1307/0.3081; found {text[:40]!r}.")
    mean, std = (tuple(map(float, part.split(","))) for part in text.split("/"))
    if not all(std):
        raise ConfigError(f"--pixels {text}: no standard deviation may be 0.")
    return Pixels(text, 255.0, mean, std)
