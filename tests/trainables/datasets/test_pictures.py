"""Encoded pictures: in Parquet and in class folders, whole and damaged."""

import io
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from automcu_ray.core.errors import ConfigError
from automcu_ray.testing.dataset_contract import opened
from trainables.datasets import pictures, prepared
from trainables.datasets.base import Images, data_folder
from trainables.datasets.image_folder import image_folder
from trainables.datasets.parquet_images import parquet_images
from trainables.datasets.published import cifar10, imagenette

SHARED_CIFAR = Path(__file__).resolve().parents[4] / "shared" / "data" / "cifar10"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOMCU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def encoded(pixels: Images, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def random_pixels(count: int, *shape: int) -> Images:
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


def write_parquet(path: Path, images: Images, labels: list[int], image: str = "image", **metadata: Any) -> None:
    blobs = [{"bytes": encoded(pixels), "path": None} for pixels in images]
    table = pa.table({image: blobs, "label": labels})
    pq.write_table(table.replace_schema_metadata({key: json.dumps(value) for key, value in metadata.items()}), path)


class TestParquet:
    def made(self, folder: Path, count: int = 40) -> Images:
        images = random_pixels(count, 6, 5, 3)
        write_parquet(folder / "train.parquet", images, [i % 2 for i in range(count)])
        write_parquet(folder / "test.parquet", images[:10], [i % 2 for i in range(10)])
        return images

    def test_pixels_come_back_channels_first(self, tmp_path: Path) -> None:
        images = self.made(tmp_path)
        data = parquet_images(folder=str(tmp_path), val_share=0.25)
        assert (len(data.train), len(data.val), data.input_shape) == (30, 10, (3, 6, 5))
        assert (opened(data).images == np.moveaxis(images[:10], -1, 1)).all()
        assert opened(data).labels.tolist() == [0, 1] * 5

    def test_limits_keep_so_many_rows_of_each_class(self, tmp_path: Path) -> None:
        self.made(tmp_path)
        data = parquet_images(folder=str(tmp_path), val_share=0.5, max_train=20, max_test=4)
        assert (len(data.train), len(data.val), len(data.test)) == (10, 10, 4)
        assert np.bincount(opened(data).labels).tolist() == [2, 2]

    def test_rows_of_several_files_and_the_hubs_own_column_names(self, tmp_path: Path) -> None:
        images = random_pixels(20, 4, 4, 3)
        info = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
        write_parquet(tmp_path / "train-00000-of-00002.parquet", images[:10], [0, 1] * 5, "img", huggingface=info)
        write_parquet(tmp_path / "train-00001-of-00002.parquet", images[10:], [0, 1] * 5, "img", huggingface=info)
        data = parquet_images(folder=str(tmp_path), test=None, test_share=0.2)
        assert (len(data.train), len(data.val), len(data.test), data.classes) == (14, 2, 4, ("cat", "dog"))

    def test_files_may_differ_in_how_wide_their_numbers_and_offsets_are(self, tmp_path: Path) -> None:
        blobs = [encoded(pixels) for pixels in random_pixels(10, 4, 4)]
        for number, (binary, whole) in enumerate([(pa.binary(), pa.int64()), (pa.large_binary(), pa.int8())]):
            table = pa.table({"image": pa.array(blobs, binary), "label": pa.array([0, 1] * 5, whole)})
            pq.write_table(table, tmp_path / f"train-{number}.parquet")
        data = parquet_images(folder=str(tmp_path), test=None, val_share=0.2)
        assert (len(data.train), len(data.val), len(data.test)) == (12, 4, 4)

    def test_two_columns_of_one_name(self, tmp_path: Path) -> None:
        columns = [[encoded(random_pixels(1, 4, 4)[0])], [0], [1]]
        table = pa.Table.from_arrays([pa.array(column) for column in columns], ["image", "label", "label"])
        pq.write_table(table, tmp_path / "train.parquet")
        with pytest.raises(ConfigError, match=r"train\.parquet cannot be read as Parquet: .*label"):
            parquet_images(folder=str(tmp_path))

    def test_a_path_from_here_is_a_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "mine" / "pictures").mkdir(parents=True)
        monkeypatch.chdir(tmp_path)
        assert data_folder("mine/pictures") == data_folder("./mine/pictures") == tmp_path / "mine" / "pictures"
        with pytest.raises(ConfigError, match="no data folder 'mine'"):
            data_folder("mine")

    def test_missing_folder_says_where_it_looked(self) -> None:
        with pytest.raises(ConfigError, match=r"no data folder 'nowhere' in .*AUTOMCU_DATA"):
            parquet_images(folder="nowhere")

    def test_missing_file_and_column(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"no file .*\*train\*\.parquet"):
            parquet_images(folder=str(tmp_path))
        pq.write_table(pa.table({"label": [1]}), tmp_path / "train.parquet")
        with pytest.raises(ConfigError, match="no column of images"):
            parquet_images(folder=str(tmp_path))
        write_parquet(tmp_path / "train.parquet", random_pixels(2, 4, 4), [0, 1])
        with pytest.raises(ConfigError, match=r"no column 'fine_label'; found image, label"):
            parquet_images(folder=str(tmp_path), label="fine_label")

    @pytest.mark.parametrize(
        ("labels", "words"),
        [
            ([0, 1, 0, 7], r"found 7 at row"),
            ([0, 1, 0, -1], r"found -1 at row"),
            ([0, 1, 0, 10**12], r"found 1000000000000 at row"),
            ([0, 1, None, 1], r"found int64 with 1 missing"),
            ([0.5, 1.0, 0.5, 1.0], r"found double"),
        ],
    )
    def test_labels_that_are_none(self, labels: list[Any], words: str, tmp_path: Path) -> None:
        info = {"info": {"features": {"label": {"names": ["cat", "dog"]}}}}
        write_parquet(tmp_path / "train.parquet", random_pixels(4, 4, 4), labels, huggingface=info)
        with pytest.raises(ConfigError, match=words):
            parquet_images(folder=str(tmp_path), test=None)

    def test_a_file_that_is_no_parquet(self, tmp_path: Path) -> None:
        (tmp_path / "train.parquet").write_bytes(b"PAR1 but no more than that PAR1")
        with pytest.raises(ConfigError, match=r"train\.parquet cannot be read as Parquet"):
            parquet_images(folder=str(tmp_path))

    @pytest.mark.parametrize("blob", [b"not a picture", b"", None])
    def test_bytes_that_are_no_image(self, blob: bytes | None, tmp_path: Path) -> None:
        table = pa.table({"image": [{"bytes": encoded(random_pixels(1, 4, 4)[0])}, {"bytes": blob}], "label": [0, 1]})
        pq.write_table(table, tmp_path / "train.parquet")
        with pytest.raises(ConfigError, match=r"train\.parquet row 1: (not a picture|wanted a picture)"):
            parquet_images(folder=str(tmp_path))

    def test_a_published_set_is_read_from_its_parquet_files(self, tmp_path: Path) -> None:
        images = self.made(tmp_path)
        data = cifar10(folder=str(tmp_path), max_test=6)
        assert len(data.test) == 6 and data.input_shape == (3, 6, 5) and len(data.train) == 0.9 * len(images)

    @pytest.mark.skipif(not SHARED_CIFAR.is_dir(), reason="needs CIFAR-10 in ../shared/data/cifar10")
    def test_reads_cifar10(self) -> None:
        data = cifar10(max_train=500, max_test=100)
        assert (data.input_shape, len(data.classes), len(data.train) + len(data.val)) == ((3, 32, 32), 10, 500)
        assert np.bincount(opened(data).labels).tolist() == [10] * 10


def write_folder(root: Path, count: int = 10, **classes: Images) -> str:
    for name, pixels in classes.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            (root / name / f"{number}.png").write_bytes(encoded(pixels))
    return str(root)


GREY, WHITE = np.full((8, 8), 100, np.uint8), np.full((8, 8, 3), 255, np.uint8)


class TestImageFolder:
    def test_classes_are_folders_by_name_and_grey_images_get_three_channels_beside_coloured_ones(
        self, tmp_path: Path
    ) -> None:
        write_folder(tmp_path, zebra=GREY, ant=WHITE)
        (tmp_path / ".git").mkdir()
        (tmp_path / "ant" / "notes.txt").write_text("no picture, and no harm")
        data = image_folder(folder=str(tmp_path), val_share=0.2)
        assert (data.classes, data.input_shape, len(data.train)) == (("ant", "zebra"), (3, 8, 8), 12)
        for split in (data.train, data.val, opened(data)):
            assert (split.images == np.array([255, 100])[split.labels][:, None, None, None]).all()

    def test_grey_images_alone_have_one_channel(self, tmp_path: Path) -> None:
        assert image_folder(folder=write_folder(tmp_path, a=GREY, b=GREY)).input_shape == (1, 8, 8)

    def test_folders_of_splits_are_kept_and_the_rest_is_cut(self, tmp_path: Path) -> None:
        write_folder(tmp_path / "train", a=GREY, b=GREY)
        write_folder(tmp_path / "test", 3, a=GREY, b=GREY)
        data = image_folder(folder=str(tmp_path), val_share=0.1)
        assert (len(data.train), len(data.val), len(data.test)) == (18, 2, 6)

    def test_imagenette_has_its_test_split_in_val(self, tmp_path: Path) -> None:
        write_folder(tmp_path / "imagenette2-160" / "train", a=WHITE, b=WHITE)
        write_folder(tmp_path / "imagenette2-160" / "val", 4, a=WHITE, b=WHITE)
        data = imagenette(folder=str(tmp_path), size=4)
        assert (len(data.train), len(data.val), len(data.test), data.input_shape) == (18, 2, 8, (3, 4, 4))

    def test_size_takes_the_middle_square_and_scales_it(self, tmp_path: Path) -> None:
        wide = np.zeros((8, 16, 3), np.uint8)
        wide[:, 4:12] = (10, 20, 30)  # the middle square is of one colour
        data = image_folder(folder=write_folder(tmp_path, a=wide, b=np.full((64, 64, 3), 9, np.uint8)), size=4)
        assert data.input_shape == (3, 4, 4)
        middle = data.val.images[data.val.labels == 0][0, :, 1:3, 1:3]  # the outer pixels see a little more
        assert (middle == np.array([10, 20, 30])[:, None, None]).all()

    def test_mixed_sizes_name_two_files_and_what_to_do(self, tmp_path: Path) -> None:
        write_folder(tmp_path, a=GREY, b=np.zeros((8, 9), np.uint8))
        with pytest.raises(ConfigError, match=r"found 8x8 \(.*a/0\.png\) and 9x8 \(.*b/0\.png\): --set dataset\.size"):
            image_folder(folder=str(tmp_path))

    def test_an_empty_class_folder(self, tmp_path: Path) -> None:
        write_folder(tmp_path, a=GREY, b=GREY)
        (tmp_path / "c").mkdir()
        with pytest.raises(ConfigError, match=r"/c holds no file that ends in \.jpg"):
            image_folder(folder=str(tmp_path))

    def test_a_class_that_the_test_folder_lacks(self, tmp_path: Path) -> None:
        write_folder(tmp_path / "train", a=GREY, b=GREY)
        write_folder(tmp_path / "test", a=GREY, c=GREY)
        with pytest.raises(ConfigError, match=r"/test: wanted a folder for each class, .*\(a, b, \.\.\.\); found a, c"):
            image_folder(folder=str(tmp_path))

    def test_no_classes_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"two at least .*found none"):
            image_folder(folder=str(tmp_path))

    def test_a_file_that_may_not_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_folder(tmp_path, a=GREY, b=GREY)
        monkeypatch.setattr(Path, "open", Mock(side_effect=PermissionError(13, "Permission denied")))
        with pytest.raises(ConfigError, match=r"\.png cannot be read \(.*Permission denied\): make it readable"):
            image_folder(folder=str(tmp_path))

    def test_a_picture_of_another_kind_is_not_left_out_unsaid(self, tmp_path: Path) -> None:
        write_folder(tmp_path, a=GREY, b=GREY)
        (tmp_path / "a" / "more.TIF").write_bytes(encoded(GREY, "TIFF"))
        with pytest.raises(ConfigError, match=r"a/more\.TIF: wanted \.jpg, .*: convert it, or remove it"):
            image_folder(folder=str(tmp_path))

    def test_a_class_that_is_a_link_out_of_the_folder(self, tmp_path: Path) -> None:
        write_folder(tmp_path / "data", a=GREY, b=GREY)
        write_folder(tmp_path / "elsewhere", secret=GREY)
        (tmp_path / "data" / "c").symlink_to(tmp_path / "elsewhere" / "secret")
        with pytest.raises(ConfigError, match=r"/c is a link out of"):
            image_folder(folder=str(tmp_path / "data"))


def bomb() -> bytes:
    """A PNG of 60,000 x 60,000 pixels in a hundred bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def large() -> bytes:
    """A JPEG header of 9,000 x 9,000 pixels: below Pillow's own alarm, above ours."""
    whole = bytearray(encoded(np.zeros((16, 16), np.uint8), "JPEG"))
    at = whole.index(b"\xff\xc0") + 5
    whole[at : at + 4] = struct.pack(">HH", 9_000, 9_000)
    return bytes(whole)


JPEG = encoded(random_pixels(1, 32, 32, 3)[0], "JPEG")


class TestHostilePictures:
    @pytest.mark.parametrize("size", [None, 8])
    @pytest.mark.parametrize(
        ("name", "blob", "words"),
        [
            ("cut.jpg", JPEG[: len(JPEG) // 2], "cut.jpg: not a picture that can be decoded"),
            ("garbage.jpg", JPEG[:20] + bytes(300), "garbage.jpg: not a picture that can be decoded"),
            ("cut.png", encoded(random_pixels(1, 32, 32)[0])[:-200], "cut.png: not a picture that can be decoded"),
            ("bomb.png", bomb(), "bomb.png: "),
            ("large.jpg", large(), "large.jpg: 9000x9000 pixels in .* bytes, at most 67108864"),
            ("empty.jpg", b"", r"empty.jpg: not a picture that can be decoded \(0 bytes, of another kind\)"),
            ("gif.jpg", encoded(GREY, "GIF"), "gif.jpg: not a picture .* known are JPEG, PNG"),
            ("deep.png", encoded(np.zeros((8, 8), np.uint16)), "deep.png: pixels of mode 'I;16' are not 8 bits"),
        ],
    )
    def test_end_in_one_error_that_names_the_file(
        self, name: str, blob: bytes, words: str, size: int | None, tmp_path: Path
    ) -> None:
        write_folder(tmp_path, a=random_pixels(1, 32, 32, 3)[0], b=random_pixels(1, 32, 32, 3)[0])
        (tmp_path / "b" / name).write_bytes(blob)
        with pytest.raises(ConfigError, match=words):
            image_folder(folder=str(tmp_path), size=size)

    def test_a_file_that_is_far_too_large_is_not_read(self, tmp_path: Path) -> None:
        write_folder(tmp_path, a=GREY, b=GREY)
        with (tmp_path / "a" / "huge.png").open("wb") as file:
            file.truncate(pictures.MAX_FILE_BYTES + 1)
        with pytest.raises(ConfigError, match=r"huge\.png: wanted a picture of at most 64 MB"):
            image_folder(folder=str(tmp_path))

    @pytest.mark.parametrize("size", [0, -1, 100_000])
    def test_sizes_that_are_none(self, size: int, tmp_path: Path) -> None:
        write_folder(tmp_path, a=GREY, b=GREY)
        with pytest.raises(ConfigError, match=rf"dataset\.size wants 1 to 1024 pixels, found {size}"):
            image_folder(folder=str(tmp_path), size=size)


class TestCache:
    @pytest.fixture(autouse=True)
    def keep_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(prepared, "KEEP_S", -1.0)

    def test_a_second_run_decodes_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = image_folder(folder=write_folder(tmp_path / "data", a=GREY, b=WHITE))
        monkeypatch.setattr(pictures, "_pixels", lambda *_: pytest.fail("decoded again"))
        again = image_folder(folder=str(tmp_path / "data"))
        assert (again.train.images == first.train.images).all() and type(again.val.images) is np.ndarray

    def test_a_file_that_changed_is_decoded(self, tmp_path: Path) -> None:
        image_folder(folder=write_folder(tmp_path / "data", a=GREY, b=GREY))
        for path in (tmp_path / "data" / "a").iterdir():
            path.write_bytes(encoded(GREY + 1))
            os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
        images = image_folder(folder=str(tmp_path / "data")).train.images
        assert sorted(np.unique(images)) == [100, 101]

    def test_a_damaged_file_of_the_cache_is_made_again(self, tmp_path: Path, cache: Path) -> None:
        first = image_folder(folder=write_folder(tmp_path / "data", a=GREY, b=WHITE))
        (kept,) = (cache / "datasets").iterdir()
        kept.write_bytes(kept.read_bytes()[:150])
        assert (image_folder(folder=str(tmp_path / "data")).train.images == first.train.images).all()

    def test_a_cache_that_cannot_be_written_costs_nothing_else(self, tmp_path: Path, cache: Path) -> None:
        cache.write_text("a file where the folder should be")
        assert len(image_folder(folder=write_folder(tmp_path / "data", a=GREY, b=WHITE)).train) == 14

    def test_nothing_is_kept_of_what_could_not_be_decoded(self, tmp_path: Path, cache: Path) -> None:
        write_folder(tmp_path / "data", a=GREY, b=GREY)
        (tmp_path / "data" / "b" / "bad.png").write_bytes(b"bad")
        with pytest.raises(ConfigError):
            image_folder(folder=str(tmp_path / "data"))
        assert not cache.exists()


@pytest.mark.parametrize(("option", "made"), [("val", ()), ("test", ()), ("train", ()), ("val", ("held",))])
def test_a_folder_that_was_named_must_be_there(tmp_path: Path, option: str, made: tuple[str, ...]) -> None:
    """The last one: `held` is there, but without a folder `train` it would be one more class."""
    for name in made or ("train",):
        for label in ("cat", "dog"):
            (tmp_path / name / label).mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"dataset.{option}=held: wanted"):
        image_folder(folder=str(tmp_path), **{option: "held"})
