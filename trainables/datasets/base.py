"""What a data set is: three splits of uint8 images."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from automcu_ray.errors import ConfigError
from automcu_ray.task import Form

Images = NDArray[np.uint8]  # (N, channels, height, width)
Labels = NDArray[np.int64]  # (N,)
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Split:
    """Images (N, channels, height, width) uint8 and labels (N,) int64."""

    images: Images
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """Train and validation for the search, test for the winner alone, once."""

    wants: ClassVar[Form] = "network"

    name: str
    classes: tuple[str, ...]
    train: Split
    val: Split
    test: Split

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height, width of one image."""
        _, channels, height, width = self.train.images.shape
        return channels, height, width


def cut(images: Images, labels: Labels, share: float, seed: int) -> tuple[Split, Split]:
    """Return (rest, share of it): a stratified random split that depends on the seed alone."""
    rest, held = train_test_split(np.arange(len(labels)), test_size=share, random_state=seed, stratify=labels)
    return Split(images[rest], labels[rest]), Split(images[held], labels[held])


def data_folder(name: str) -> Path:
    """Return the folder of a data set: an absolute path, or a name under the first data folder that has it.

    Data folders are $AUTOMCU_DATA, `data` in the checkout, and `shared/data` beside the checkout.

    Raises:
        ConfigError: none of them has it.
    """
    roots = [REPOSITORY / "data", REPOSITORY.parent / "shared" / "data"]
    if os.environ.get("AUTOMCU_DATA"):
        roots.insert(0, Path(os.environ["AUTOMCU_DATA"]))
    for root in roots:
        if (root / name).is_dir():
            return root / name
    raise ConfigError(
        f"no data folder {name!r} in {', '.join(str(root) for root in roots)}: "
        f"put it there, or point AUTOMCU_DATA or --set dataset.folder=PATH to it."
    )
