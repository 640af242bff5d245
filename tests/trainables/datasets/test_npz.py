"""Arrays in a .npz file: any shape, checked before it is loaded."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.testing.dataset_contract import opened
from trainables.datasets.npz import npz

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 3, 1, 50), dtype=np.uint8)
LABELS = np.arange(40) % 4


def saved(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "data.npz", **arrays)
    return str(folder)


def test_any_shape_is_cut_into_splits(tmp_path: Path) -> None:
    data = npz(folder=saved(tmp_path, images=IMAGES, labels=LABELS))
    assert (len(data.train), len(data.val), len(data.test)) == (26, 6, 8)
    assert (data.input_shape, data.classes) == ((3, 1, 50), ("0", "1", "2", "3"))


def test_splits_that_the_file_has_are_kept_and_grey_images_get_their_channel(tmp_path: Path) -> None:
    flat = IMAGES[:, 0]
    arrays = {"images": flat, "test_images": flat[:8], "val_images": flat[:4]}
    labels = {"labels": LABELS.astype(np.uint8), "test_labels": LABELS[:8], "val_labels": LABELS[:4]}
    data = npz(folder=saved(tmp_path, **arrays, **labels))
    assert (len(data.train), len(data.val), data.input_shape) == (40, 4, (1, 1, 50))
    assert (opened(data).images[:, 0] == flat[:8]).all()


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "other.npz", images=IMAGES, labels=LABELS)
    assert npz(folder=str(tmp_path), file="other.npz").name == "other"


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"images": IMAGES}, r"has no array 'labels'; found images"),
        ({"pictures": IMAGES}, r"has no array 'images': save it by numpy\.savez"),
        ({"images": IMAGES, "labels": LABELS, "test_images": IMAGES}, r"has no array 'test_labels'"),
        ({"images": IMAGES[0], "labels": LABELS}, r"found int64 \(40,\)"),
        ({"images": IMAGES[0, 0], "labels": LABELS}, r"wanted uint8 images .* found uint8 \(1, 50\)"),
        ({"images": IMAGES, "labels": LABELS * 10**9}, r"found 1000000000 at row 1"),
        ({"images": IMAGES, "labels": LABELS / 2}, r"found float64"),
        ({"images": IMAGES, "labels": np.array(["a", "b"] * 20)}, r"found <U1"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, r"wanted uint8 images"),
        ({"images": np.array([object()]), "labels": LABELS}, r"'images' holds pickled objects, .* never loaded"),
        ({"images": IMAGES, "labels": np.array([{}] * 40)}, r"'labels' holds pickled objects"),
    ],
)
def test_arrays_that_are_no_data_set(arrays: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        npz(folder=saved(tmp_path, **arrays))


@pytest.mark.parametrize(
    ("shape", "fine"), [((8, 8, 3), False), ((5, 5, 1), False), ((3, 3, 3), True), ((8, 9, 3), True)]
)
def test_square_images_with_their_channels_last_are_told_from_others(
    shape: tuple[int, ...], fine: bool, tmp_path: Path
) -> None:
    folder = saved(tmp_path, images=np.zeros((40, *shape), np.uint8), labels=LABELS)
    if fine:
        assert npz(folder=folder).input_shape == shape
    else:
        with pytest.raises(ConfigError, match=r"looks like N x H x W x C: save images\.transpose\(0, 3, 1, 2\)"):
            npz(folder=folder)


def claiming(shape: tuple[int, ...]) -> bytes:
    """An array of a hundred bytes whose header claims another shape."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return buffer.getvalue() + bytes(100)


def archived(folder: Path, **files: bytes) -> None:
    with zipfile.ZipFile(folder / "data.npz", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("shape", [(10**12,), (10, 11), (-10, -10), (2**62, 4)])
def test_a_shape_that_is_not_there_takes_no_memory(shape: tuple[int, ...], tmp_path: Path) -> None:
    archived(tmp_path, **{"images.npy": claiming(shape), "labels.npy": claiming((100,))})
    with pytest.raises(ConfigError, match=r"array 'images' of shape .* is cut: 100 bytes"):
        npz(folder=str(tmp_path))


def test_more_than_memory_in_a_small_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    archived(tmp_path, **{"images.npy": claiming((100,)), "labels.npy": claiming((100,))})
    whole = (tmp_path / "data.npz").read_bytes()
    at = whole.index(b"PK\x01\x02") + 24  # the size when unpacked, in the directory
    (tmp_path / "data.npz").write_bytes(whole[:at] + b"\xf0\xff\xff\xff" + whole[at + 4 :])
    with pytest.raises(ConfigError, match=r"would take 4\.3 GB|cannot be read|is cut"):
        npz(folder=str(tmp_path))


def test_a_file_that_is_cut_damaged_or_no_zip_file(tmp_path: Path) -> None:
    saved(tmp_path, images=IMAGES, labels=LABELS)
    whole = (tmp_path / "data.npz").read_bytes()
    flipped = bytearray(whole)
    flipped[1000] ^= 255
    for content in (whole[: len(whole) // 2], bytes(flipped), b"", b"no zip file", b"PK\x03\x04" + bytes(100)):
        (tmp_path / "data.npz").write_bytes(content)
        with pytest.raises(ConfigError, match=r"data\.npz cannot be read as arrays in a zip file"):
            npz(folder=str(tmp_path))


def test_names_that_are_no_arrays_of_numpy(tmp_path: Path) -> None:
    archived(tmp_path, images=b"no .npy behind the name", labels=b"nor here")
    with pytest.raises(ConfigError, match=r"has no array 'images': save it by numpy\.savez"):
        npz(folder=str(tmp_path))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file .*data\.npz: set dataset\.file"):
        npz(folder=str(tmp_path))


def test_a_compressed_array_that_is_damaged(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "data.npz", images=IMAGES, labels=LABELS)
    whole = bytearray((tmp_path / "data.npz").read_bytes())
    whole[100:140] = b"\xff" * 40
    (tmp_path / "data.npz").write_bytes(whole)
    with pytest.raises(ConfigError, match=r"data\.npz cannot be read as arrays in a zip file"):
        npz(folder=str(tmp_path))
