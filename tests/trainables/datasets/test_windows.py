"""Windows of tables of samples: even intervals from uneven stamps, subjects apart, files that are damaged."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.runtime.config import compose
from automcu_ray.testing.dataset_contract import DatasetContract, opened, rows
from trainables.datasets.base import data_folder
from trainables.datasets.sample_tables import recordings
from trainables.datasets.windows import windows

OPTIONS: dict[str, Any] = {"channels": ("x", "y"), "rate_hz": 50, "seconds": 0.4, "time": "t"}


def table(subjects: int = 5, samples: int = 120) -> pa.Table:
    """Two activities by some people, at about 50 Hz: still, and shaken at 5 Hz; the stamps jitter."""
    rng, columns = np.random.default_rng(0), {name: [] for name in ("x", "y", "t", "label", "subject")}
    for person in range(subjects):
        stamps = np.cumsum(rng.integers(15, 26, 2 * samples))
        shaken = np.arange(2 * samples) >= samples
        columns["x"] += (
            9.8 + shaken * 5 * np.sin(stamps / 1000 * 2 * np.pi * 5) + rng.normal(0, 0.1, len(stamps))
        ).tolist()
        columns["y"] += rng.normal(person, 1, len(stamps)).tolist()
        columns["t"] += stamps.tolist()
        columns["label"] += np.where(shaken, "shaken", "still").tolist()
        columns["subject"] += [f"s{person}"] * len(stamps)
    return pa.table(columns)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    pq.write_table(table(), tmp_path / "all.parquet")
    return str(tmp_path)


class TestWindows(DatasetContract):
    load = staticmethod(windows)

    @pytest.fixture(autouse=True)
    def _folder(self, folder: str) -> None:
        self.folder = folder

    def options(self) -> dict[str, Any]:
        return {"folder": self.folder, **OPTIONS}


def test_subjects_are_in_one_split_each_and_csv_gives_the_same(folder: str) -> None:
    named: dict[str, Any] = {"test_subjects": ("s4",), "val_subjects": ("s0",), **OPTIONS}
    data = windows(folder=folder, **named)
    assert (data.input_shape, data.classes) == ((2, 1, 20), ("shaken", "still"))
    assert data.about["test_subjects"] == "s4" and data.about["gaps"] == 0 and data.about["rows"] == 1200
    assert len(data.train) == pytest.approx(3 * len(data.test), abs=6)
    shakes = [data.train.images[data.train.labels == label, 0].std(axis=2).mean() for label in (0, 1)]
    assert shakes[0] > 15 * shakes[1], "gravity is taken off, and the shaking fills the range"
    pyarrow.csv.write_csv(table(), Path(folder, "all.csv"))
    assert rows(opened(windows(folder=folder, files="*.csv", **named))) == rows(opened(data))


def test_uneven_stamps_become_even_and_gaps_end_a_recording() -> None:
    seconds = np.array([0.0, 0.1, 0.1, 0.3, 2.0, 2.1, 0.2, np.nan])
    values = np.array([[0.0], [1], [3], [6], [9], [10], [4], [5]])
    labels = np.array(["a", "a", "b", "b", "c", "c", "b", "c"])
    who = np.array(["s"] * 8)
    found, mended = recordings(seconds, values, labels, who, who, rate_hz=20, max_gap_s=0.5)
    assert [one.values[:, 0].tolist() for one in found] == [
        pytest.approx([0, 1, 2, 3, 4, 5, 6]),
        pytest.approx([9, 9.5, 10]),
    ]
    assert found[0].labels.tolist() == ["a", "a", "a", "a", "b", "b", "b"]
    assert tuple(mended) == (8, 1, 1, 1, 1)  # rows, not finite, equal stamps, backward, gaps


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"channels": ("x", "z")}, r"all\.parquet has no column 'z'; found x, y, t, label, subject"),
        ({"channels": ("label",)}, r"column 'label' should hold numbers, found (large_)?string"),
        ({"channels": ()}, r"wants channels, and a window of 2 to 4096 samples"),
        ({"seconds": 1000}, r"1000 s at 50 Hz"),
        ({"time_unit": "min"}, r"unknown dataset\.time_unit 'min'"),
        ({"time_unit": "s", "max_gap_s": 1e9, "rate_hz": 1e5, "seconds": 0.001}, r"is dataset\.time_unit right\?"),
        ({"test_subjects": ("s9",)}, r"unknown subject 's9'"),
        ({"test_subjects": ("s1",), "val_subjects": ("s1",)}, r"subject 's1' is in val_subjects and in test_subjects"),
        ({"where": {"label": "running"}}, r"no row of 1200 has these values"),
        ({"where": {"subject": "s1"}}, r"1 subjects cannot be split"),
        ({"seconds": 10}, r"no recording is as long as a window, 500 samples"),
        ({"files": "*.csv"}, r"no file .*\*\.csv: set dataset\.files"),
        ({"units_per_count": (1.0,)}, r"wants a number for each of 2 channels"),
    ],
)
def test_options_that_cannot_be(folder: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        windows(folder=folder, **{**OPTIONS, **options})


@pytest.mark.parametrize("content", [b"", b"x,y\n1,2,3\n", b"x,y,t,label,subject\n1,2,3,a\n", b"PAR1", b"\xff\xfe\0"])
@pytest.mark.parametrize("name", ["all.csv", "all.parquet"])
def test_damaged_files_are_one_line(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"{name} (cannot be read as|has no column)") as caught:
        windows(folder=str(tmp_path), files=name, **OPTIONS)
    assert "\n" not in str(caught.value)


@pytest.mark.thorough
def test_the_motion_of_23_people_is_cut_into_windows_of_each_activity() -> None:
    try:
        data_folder("har")
    except ConfigError as error:
        pytest.skip(str(error))
    data = windows(**compose({"task": "motion"}).dataset.options)
    assert (data.input_shape, len(data.classes)) == ((6, 1, 100), 5)
    assert (len(data.train), len(data.val), len(data.test)) == (3050, 602, 1049)
    assert data.about["gaps"] == 0 and data.about["rows_with_equal_stamps"] == 1362
