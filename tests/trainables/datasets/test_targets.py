"""Labels that are values, and data of which only the normal examples are learnt."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from automcu_ray.core.errors import ConfigError
from automcu_ray.testing.dataset_contract import opened, rows
from tests.trainables.datasets.test_windows import OPTIONS, table
from trainables.datasets.base import Dataset
from trainables.datasets.digits import digits
from trainables.datasets.npz import npz
from trainables.datasets.parquet_images import parquet_images
from trainables.datasets.targets import only_normal
from trainables.datasets.windows import windows

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 3, 1, 50), dtype=np.uint8)
VALUES = np.stack([np.linspace(0, 1, 40), np.linspace(5, -5, 40) ** 2], axis=1)


def saved(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "data.npz", **arrays)
    return str(folder)


def images_in_parquet(folder: Path, **columns: Any) -> str:
    blobs = []
    for at in range(30):
        buffer = io.BytesIO()
        Image.fromarray(np.full((4, 4), at * 8, np.uint8)).save(buffer, "PNG")
        blobs.append(buffer.getvalue())
    pq.write_table(pa.table({"image": pa.array(blobs, pa.binary()), **columns}), folder / "a-train.parquet")
    return str(folder)


def check(data: Dataset, names: tuple[str, ...]) -> None:
    """What any data set of values keeps to."""
    assert data.kind == "regression" and data.classes == () and data.outputs == len(names)
    assert tuple(target.name for target in data.targets) == names
    splits = [data.train, data.val, opened(data)]
    for split in splits:
        assert split.labels.dtype == np.float32 and split.labels.shape == (len(split), len(names)) and len(split) > 1
    train, val, test = map(rows, splits)
    assert not (train & val or train & test or val & test)
    for target, column in zip(data.targets, data.train.labels.astype(float).T, strict=True):
        assert target.mean == pytest.approx(column.mean()) and target.deviation == pytest.approx(column.std())
        assert target.trivial_mae == pytest.approx(np.abs(column - np.median(column)).mean())


def test_arrays_of_values_are_cut_by_the_split_seed_alone(tmp_path: Path) -> None:
    folder = saved(tmp_path, images=IMAGES, targets=VALUES)
    data = npz(folder=folder)
    check(data, ("target_1", "target_2"))
    assert (len(data.train), len(data.val), len(data.test)) == (26, 6, 8)
    assert data.sha256 == npz(folder=folder).sha256 != npz(folder=folder, split_seed=1).sha256
    known = {image.tobytes(): value for image, value in zip(IMAGES, VALUES.astype(np.float32), strict=True)}
    for image, value in zip(data.train.images, data.train.labels, strict=True):
        assert (known[image.tobytes()] == value).all(), "values stay with their images"


def test_columns_of_a_parquet_file_are_values(tmp_path: Path) -> None:
    folder = images_in_parquet(tmp_path, age=np.arange(30) / 2, weight=np.arange(30)[::-1])
    check(parquet_images(folder=folder, test=None, targets=("age", "weight")), ("age", "weight"))
    few = parquet_images(folder=folder, test=None, targets=("age",), max_train=20)
    assert len(few.train) + len(few.val) + len(few.test) == 20
    with pytest.raises(ConfigError, match="has no column 'size'"):
        parquet_images(folder=folder, test=None, targets=("size",))


def test_a_windows_values_are_means_over_its_samples(tmp_path: Path) -> None:
    samples = table()
    position = np.array(samples["t"].to_pylist(), float)
    holes = np.where(np.arange(len(position)) % 50 == 0, np.nan, position)
    pq.write_table(samples.append_column("position", pa.array(holes)), tmp_path / "all.parquet")
    data = windows(folder=str(tmp_path), targets=("position",), **OPTIONS)
    check(data, ("position",))
    assert data.about["rows_not_finite"] == 24, "a row without its value is left out"
    apart = np.diff(np.sort(data.val.labels[:, 0]))
    assert np.median(apart) == pytest.approx(200, abs=15), "windows of 0.4 s begin each 0.2 s"


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"targets": VALUES[:30]}, r"wanted 1 to 64 values for each of 40 images, found \(30, 2\)"),
        ({"targets": np.where(VALUES == VALUES[3], np.nan, VALUES)}, "must be finite .* at row 3, and 0 more"),
        ({"targets": VALUES * 1e300}, "must be finite"),
        ({"targets": np.ones(40)}, "target 'target' has the same value everywhere"),
        ({"targets": np.array(["a"] * 40)}, "wanted numbers"),
        ({"targets": VALUES[:, :, None]}, "wanted numbers"),
        ({"targets": np.zeros((40, 65))}, "wanted 1 to 64 values"),
        ({"targets": VALUES, "val_targets": VALUES}, "has no array 'val_images'"),
    ],
)
def test_what_are_no_values_is_refused(arrays: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        npz(folder=saved(tmp_path, images=IMAGES, **arrays))


def test_training_has_normal_examples_alone_and_the_test_stays_sealed() -> None:
    data = only_normal(digits(), ("3", "8"))
    assert (data.kind, data.classes, data.outputs) == ("anomaly", ("normal", "anomaly"), 64)
    assert not data.train.labels.any() and len(data.train) < len(digits().train) / 4
    for split, before in ((data.val, digits().val), (opened(data), opened(digits()))):
        assert (split.images == before.images).all() and (split.labels == ~np.isin(before.labels, (3, 8))).all()
    assert data.about["normal"] == "3, 8"


@pytest.mark.parametrize(
    ("normal", "said"),
    [(("3", "x"), "unknown class 'x'"), (tuple(map(str, range(10))), "some class of the data has to be left")],
)
def test_normal_names_some_of_the_classes(normal: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        only_normal(digits(), normal)


def test_values_have_no_normal_classes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has none"):
        only_normal(npz(folder=saved(tmp_path, images=IMAGES, targets=VALUES)), ("0",))
