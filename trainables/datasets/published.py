"""Published image data sets by name: from Parquet files of the Hugging Face hub, or by torchvision's own loaders."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from automcu_ray.core.errors import ConfigError
from trainables.datasets.base import Dataset, Split, assemble, data_roots, in_short, pick
from trainables.datasets.image_folder import image_folder
from trainables.datasets.parquet_images import parquet_images

Load = Callable[..., Dataset]


def _arrays(name: str, loader: str, hub: str, label: str = "label") -> Load:
    """Return the loader of a data set that torchvision holds as one array."""

    def load(
        *,
        folder: str = name,
        size: int | None = None,
        val_share: float = 0.1,
        split_seed: int = 0,
        max_train: int | None = None,
        max_test: int | None = None,
    ) -> Dataset:
        root = _folder(folder)
        limits: dict[str, Any] = {"max_train": max_train, "max_test": max_test}
        options: dict[str, Any] = {"val_share": val_share, "split_seed": split_seed}
        if any(root.glob("*.parquet")):
            return parquet_images(folder=str(root), label=label, size=size, **limits, **options)
        if size is not None:
            raise ConfigError(f"dataset.size: {name!r} has one size as torchvision reads it; leave it out.")
        parts = [_torchvision(loader, root, hub, train=train) for train in (True, False)]
        whole, test = (_split(part, *limit, split_seed) for part, limit in zip(parts, limits.items(), strict=True))
        return assemble(name, tuple(parts[0].classes), whole, test=test, **options)

    load.__doc__ = f"""Return {loader}, from `<folder>/*.parquet` (huggingface.co/datasets/{hub}) or by torchvision.

    torchvision downloads what is not there into the first data folder. Validation is cut from the training images.

    Raises:
        ConfigError: neither is there, and it cannot be downloaded; or files that are damaged.
    """
    return load


def imagenette(
    *,
    folder: str = "imagenette",
    size: int | None = 64,
    val_share: float = 0.1,
    split_seed: int = 0,
    max_train: int | None = None,
    max_test: int | None = None,
) -> Dataset:
    """Return Imagenette, ten classes of ImageNet, from `<folder>/imagenette2-160/{train,val}`; `val` is its test split.

    torchvision downloads what is not there. Validation is cut from the training images.

    Raises:
        ConfigError: it is not there and cannot be downloaded; or files that are damaged.
    """
    root = _folder(folder)
    archive = root / "imagenette2-160"
    if not archive.is_dir():
        for split in ("train", "val"):
            _torchvision("Imagenette", root, "", split=split, size="160px")
    return image_folder(
        folder=str(archive),
        val=None,
        test="val",
        size=size,
        val_share=val_share,
        split_seed=split_seed,
        max_train=max_train,
        max_test=max_test,
    )


def _folder(folder: str) -> Path:
    """Return the data folder, or where it will be made: in the first place where data sets lie."""
    return next((root / folder for root in data_roots() if (root / folder).is_dir()), data_roots()[0] / folder)


def _torchvision(loader: str, root: Path, hub: str, **options: Any) -> Any:
    """Return torchvision's data set: what is there if its checksums agree, else a download."""
    or_parquet = f", or put the Parquet files of huggingface.co/datasets/{hub} into {root}" if hub else ""
    try:
        make = getattr(importlib.import_module("torchvision.datasets"), loader)
    except (ImportError, RuntimeError, OSError) as error:
        raise ConfigError(
            f"{loader} is not in {root}, and torchvision, which would download it, cannot be used ({in_short(error)}): "
            f"pip install 'automcu-ray[vision]' (beside a CPU torch from the same index){or_parquet}."
        ) from error
    try:
        return make(str(root), **options)
    except Exception:  # not there, or damaged: RuntimeError, or whatever reading it raises
        pass
    try:
        return make(str(root), download=True, **options)
    except Exception as error:  # no network, a full disk, a server's error page: whatever urllib and tarfile raise
        raise ConfigError(
            f"{loader} is not whole in {root}, and downloading it failed ({in_short(error)}): run "
            f"once where there is a network, with AUTOMCU_DATA set and copy that folder here{or_parquet}."
        ) from error


def _split(part: Any, option: str, limit: int | None, seed: int) -> Split:
    """Return torchvision's `data`, (N, H, W) or (N, H, W, C), and `targets`."""
    images, labels = np.asarray(part.data), np.asarray(part.targets, np.int64)
    images = np.ascontiguousarray(np.moveaxis(images, -1, 1)) if images.ndim == 4 else images[:, None]
    rows = pick(labels, limit, seed, f"dataset.{option}")
    return Split(images[rows], labels[rows])


cifar10 = _arrays("cifar10", "CIFAR10", "uoft-cs/cifar10")
cifar100 = _arrays("cifar100", "CIFAR100", "uoft-cs/cifar100", "fine_label")
mnist = _arrays("mnist", "MNIST", "ylecun/mnist")
fashion_mnist = _arrays("fashion_mnist", "FashionMNIST", "zalando-datasets/fashion_mnist")
