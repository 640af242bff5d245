"""Data sets: splits that do not overlap, and clear errors about files."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from automcu_ray.errors import ConfigError
from trainables.datasets.base import Images, Split
from trainables.datasets.digits import digits
from trainables.datasets.parquet_images import parquet_images

SHARED_CIFAR = Path(__file__).resolve().parents[3] / "shared" / "data" / "cifar10"


def rows(split: Split) -> set[bytes]:
    return {image.tobytes() for image in split.images}


class TestDigits:
    def test_real_images_in_three_stratified_splits(self) -> None:
        data = digits()
        assert (len(data.train), len(data.val), len(data.test)) == (1167, 270, 360)
        assert data.input_shape == (1, 8, 8)
        assert (data.train.images.min(), data.train.images.max()) == (0, 255)
        for split in (data.train, data.val, data.test):
            assert np.bincount(split.labels, minlength=10).min() >= 0.09 * len(split)

    def test_splits_share_no_image(self) -> None:
        data = digits()
        assert not rows(data.train) & rows(data.test)
        assert not rows(data.train) & rows(data.val)
        assert not rows(data.val) & rows(data.test)

    def test_split_depends_on_its_seed_alone(self) -> None:
        assert (digits().test.images == digits().test.images).all()
        assert not (digits(split_seed=1).test.labels == digits().test.labels).all()


def write_parquet(path: Path, images: Images, labels: list[int]) -> None:
    blobs = []
    for image in images:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "PNG")
        blobs.append({"bytes": buffer.getvalue(), "path": None})
    pq.write_table(pa.table({"image": blobs, "label": labels}), path)


class TestParquetImages:
    def made(self, folder: Path, count: int = 40) -> Images:
        images = np.random.default_rng(0).integers(0, 256, (count, 6, 5, 3), dtype=np.uint8)
        write_parquet(folder / "train.parquet", images, [i % 2 for i in range(count)])
        write_parquet(folder / "test.parquet", images[:10], [i % 2 for i in range(10)])
        return images

    def test_pixels_come_back_channels_first(self, tmp_path: Path) -> None:
        images = self.made(tmp_path)
        data = parquet_images(folder=str(tmp_path), val_share=0.25)
        assert (len(data.train), len(data.val), data.input_shape) == (30, 10, (3, 6, 5))
        assert (data.test.images == np.moveaxis(images[:10], -1, 1)).all()
        assert data.test.labels.tolist() == [0, 1] * 5

    def test_limits_keep_the_first_rows(self, tmp_path: Path) -> None:
        self.made(tmp_path)
        data = parquet_images(folder=str(tmp_path), val_share=0.5, max_train=20, max_test=4)
        assert (len(data.train), len(data.val), len(data.test)) == (10, 10, 4)

    def test_missing_folder_says_where_it_looked(self) -> None:
        with pytest.raises(ConfigError, match=r"no data folder 'nowhere' in .*AUTOMCU_DATA"):
            parquet_images(folder="nowhere")

    def test_missing_file_and_column(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"no file .*train\.parquet"):
            parquet_images(folder=str(tmp_path))
        pq.write_table(pa.table({"label": [1]}), tmp_path / "train.parquet")
        with pytest.raises(ConfigError, match="no column 'image'"):
            parquet_images(folder=str(tmp_path))

    def test_bytes_that_are_no_image(self, tmp_path: Path) -> None:
        table = pa.table({"image": [{"bytes": b"not a picture", "path": None}], "label": [0]})
        pq.write_table(table, tmp_path / "train.parquet")
        with pytest.raises(ConfigError, match=r"train\.parquet row 0: not an image"):
            parquet_images(folder=str(tmp_path))

    @pytest.mark.skipif(not SHARED_CIFAR.is_dir(), reason="needs CIFAR-10 in ../shared/data/cifar10")
    def test_reads_cifar10(self) -> None:
        data = parquet_images(
            folder="cifar10", train="cifar10_train.parquet", test="cifar10_test.parquet", max_train=500, max_test=100
        )
        assert (data.input_shape, len(data.classes), len(data.train) + len(data.val)) == ((3, 32, 32), 10, 500)
