"""Published data sets as torchvision reads them, from small files in their own formats; without it, what to do."""

import hashlib
import pickle
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from automcu_ray.core.errors import ConfigError
from automcu_ray.testing.dataset_contract import opened
from trainables.datasets.base import data_folder
from trainables.datasets.published import cifar10, fashion_mnist, imagenette, mnist

NOT_ON_THIS_MACHINE = "no-such-data-set-on-this-machine"


@pytest.fixture
def torchvision() -> ModuleType:
    """Return torchvision; beside a CPU torch PyPI's build lacks two operators, which nothing here uses."""
    declared = torch.library.Library("torchvision", "FRAGMENT")
    if not hasattr(torch.ops.torchvision, "nms"):
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return pytest.importorskip("torchvision.datasets", reason="needs torchvision (pip install 'automcu-ray[vision]')")


def write_idx(path: Path, array: np.ndarray[Any, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes())


def write_mnist(raw: Path) -> np.ndarray[Any, Any]:
    images = np.random.default_rng(0).integers(0, 256, (60, 28, 28), dtype=np.uint8)
    for name, count in (("train", 60), ("t10k", 20)):
        write_idx(raw / f"{name}-images-idx3-ubyte", images[:count])
        write_idx(raw / f"{name}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8) % 10)
    return images


@pytest.mark.parametrize(("load", "name"), [(mnist, "MNIST"), (fashion_mnist, "FashionMNIST")])
def test_idx_files_that_are_there_are_read(load: Any, name: str, torchvision: ModuleType, tmp_path: Path) -> None:
    images = write_mnist(tmp_path / name / "raw")
    data = load(folder=str(tmp_path), val_share=0.2, max_train=50)
    assert (len(data.train), len(data.val), data.input_shape, len(data.classes)) == (40, 10, (1, 28, 28), 10)
    assert (opened(data).images[:, 0] == images[:20]).all()


def write_cifar(loader: Any, root: Path, monkeypatch: pytest.MonkeyPatch, *, signed: bool) -> np.ndarray[Any, Any]:
    """Write pickles as CIFAR-10 has them; `signed` ones have the checksums that torchvision expects."""
    images = np.random.default_rng(0).integers(0, 256, (20, 3072), dtype=np.uint8)
    names = pickle.dumps({"label_names": [f"class {number}" for number in range(10)]})
    batch = pickle.dumps({"data": images, "labels": [number % 10 for number in range(20)]})
    folder = root / loader.base_folder
    folder.mkdir(parents=True)
    for name in [*(name for name, _ in loader.train_list + loader.test_list), loader.meta["filename"]]:
        (folder / name).write_bytes(names if name == loader.meta["filename"] else batch)
    if signed:
        digest = hashlib.md5(batch).hexdigest()
        for which in ("train_list", "test_list"):
            monkeypatch.setattr(loader, which, [[name, digest] for name, _ in getattr(loader, which)])
        monkeypatch.setattr(loader, "meta", {**loader.meta, "md5": hashlib.md5(names).hexdigest()})
    return images.reshape(-1, 3, 32, 32)


def test_pickles_are_read_where_their_checksums_agree(
    torchvision: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = write_cifar(torchvision.CIFAR10, tmp_path, monkeypatch, signed=True)
    data = cifar10(folder=str(tmp_path))
    assert (len(data.train), len(data.val), data.classes[3]) == (90, 10, "class 3")
    assert (opened(data).images == images).all()


class Hostile:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a hostile pickle was loaded",))


def test_pickles_of_others_are_not_loaded(
    torchvision: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar(torchvision.CIFAR10, tmp_path, monkeypatch, signed=False)
    for path in (tmp_path / torchvision.CIFAR10.base_folder).iterdir():
        path.write_bytes(pickle.dumps(Hostile()))
    monkeypatch.setattr(torchvision.CIFAR10, "url", "http://127.0.0.1:9/cifar.tar.gz")  # nobody listens there
    with pytest.raises(ConfigError, match=r"CIFAR10 is not whole in .*uoft-cs/cifar10"):
        cifar10(folder=str(tmp_path))


def test_without_torchvision_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    words = r"FashionMNIST is not in .*pip install 'automcu-ray\[vision\]'.*or put the Parquet files of "
    words += r"huggingface\.co/"
    with pytest.raises(ConfigError, match=words):
        fashion_mnist(folder=NOT_ON_THIS_MACHINE)
    with pytest.raises(ConfigError, match=r"Imagenette is not in .*pip install"):
        imagenette(folder=NOT_ON_THIS_MACHINE)
    with pytest.raises(ConfigError, match="no data folder"):  # nothing half-made is left
        data_folder(NOT_ON_THIS_MACHINE)


def test_where_downloading_fails_the_error_says_what_to_do(
    torchvision: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchvision.MNIST, "mirrors", ["http://127.0.0.1:9/"])
    with pytest.raises(ConfigError, match=r"MNIST is not whole in .*downloading it failed .*AUTOMCU_DATA"):
        mnist(folder=str(tmp_path))


def test_a_damaged_file_is_an_error(torchvision: ModuleType, tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST" / "raw")
    (tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + bytes(40))
    with pytest.raises(ConfigError, match="MNIST is not whole in"):
        mnist(folder=str(tmp_path))
