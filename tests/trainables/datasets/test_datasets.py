"""What all data sets share: splits that do not overlap, checked labels, a test split that stays where it is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from automcu_ray.core.errors import ConfigError
from automcu_ray.records import events
from automcu_ray.records.journal import Repository
from automcu_ray.run import trials
from automcu_ray.run.plan import prepare
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.plugins import check_options, load
from automcu_ray.testing.dataset_contract import opened
from trainables.datasets import DATASETS
from trainables.datasets.base import Dataset, Split, assemble, check_memory, numbered, pick, shuffled
from trainables.datasets.digits import digits


def test_digits_are_real_images_in_three_stratified_splits() -> None:
    data = digits(split_seed=7)
    sizes = {"train": 1167, "val": 270, "test": 360}
    assert data.about == {"name": "digits", "split_seed": 7, **sizes, "sha256": data.sha256}
    assert (data.input_shape, data.train.images.min(), data.train.images.max()) == ((1, 8, 8), 0, 255)
    for split in (data.train, data.val, opened(data)):
        assert np.bincount(split.labels, minlength=10).min() >= 0.09 * len(split)


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_every_name_loads_a_function_whose_options_are_typed(name: str) -> None:
    make = load("dataset", DATASETS, name)
    assert check_options("dataset", name, make, {}) == {}
    with pytest.raises(ConfigError, match="unknown dataset option 'no_such'"):
        check_options("dataset", name, make, {"no_such": 1})


class TestTheTestSplit:
    def test_opens_once_the_journal_says_for_whom(self, tmp_path: Path) -> None:
        journal = Repository(tmp_path / "journal.jsonl")
        assert len(digits().test.open("winner abc", journal)) == 360
        kept = Repository(tmp_path / "journal.jsonl").last(events.TestRead)
        assert kept == events.TestRead(reader="winner abc", images=360)

    def test_stays_shut_where_the_journal_cannot_be_written(self, tmp_path: Path) -> None:
        with pytest.raises(OSError):
            digits().test.open("winner abc", Repository(tmp_path / "missing" / "journal.jsonl"))

    def test_no_image_of_it_is_in_what_trials_are_given(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sent: dict[str, Any] = {}

        def keep(trainable: object, **parameters: Any) -> object:
            sent.update(parameters)
            return trainable

        monkeypatch.setattr(trials.tune, "with_parameters", keep)
        monkeypatch.setattr(trials.tune, "with_resources", lambda trainable, _: trainable)
        monkeypatch.setattr(trials.cluster, "per_trial", lambda *_, **__: (1, 0))
        plan = prepare(compose({"task": "digits", "backend": "analytic", "searcher": "random"}))
        trials._trainable(plan)
        assert isinstance(plan.dataset, Dataset)
        blob = ray.cloudpickle.dumps(sent)
        assert all(image.tobytes() in blob for image in plan.dataset.val.images)
        assert not any(image.tobytes() in blob for image in opened(plan.dataset).images)


def made(numbers: list[int], **changes: Any) -> Split:
    images = np.arange(len(numbers) * 4, dtype=np.uint8).reshape(-1, 1, 2, 2)
    return Split(changes.get("images", images), changes.get("labels", np.array(numbers)))


def assembled(whole: Split, classes: str = "ab", **changes: Any) -> Dataset:
    return assemble("x", classes, whole, **{"val_share": 0.1, "test_share": 0.2, "split_seed": 0, **changes})


TWO, TEN = made([0, 1]), made([0, 1] * 5)
EMPTY, LARGER = np.zeros((2, 1, 0, 2), np.uint8), np.zeros((2, 1, 3, 3), np.uint8)


class TestAssemble:
    def test_shares_are_of_the_whole(self) -> None:
        data = assembled(made([0, 1] * 50))
        assert (len(data.train), len(data.val), len(data.test)) == (70, 10, 20)

    def test_splits_that_are_given_are_kept(self) -> None:
        val, test = made([0, 1, 1]), made([1, 0])
        data = assembled(made([0, 1]), val=val, test=test)
        assert data.val is val and opened(data) is test and len(data.train) == 2

    @pytest.mark.parametrize(
        ("split", "changes", "words"),
        [
            (made([0, 1] * 9 + [2]), {}, r"labels must be 0 to 1, one for each class; found 2 at row 18, and 0 more"),
            (made([0, 1] * 9 + [-1]), {}, r"found -1 at row 18"),
            (made([0, 1], labels=np.array([0.0, 1.0])), {}, r"one whole number as label .* found float64"),
            (made([0, 1], labels=np.array([0])), {}, r"for each of 2 images, found int64 \(1,\)"),
            (made([0, 1], images=np.zeros((2, 1, 2, 2), np.float32)), {}, r"wanted uint8 images .* found float32"),
            (made([0, 1], images=EMPTY), {}, r"wanted uint8 images .* found uint8 \(2, 1, 0, 2\)"),
            (made([0] * 20), {}, r"class 'b' has none of its"),
            (made([0] * 20 + [1]), {}, r"dataset\.test_share=0\.2 cannot be cut from 21 examples of 2 .* of 1: both"),
            (TWO, {"val": made([0] * 3), "test": TWO}, r"x, validation split: class 'b' has none of its 3 examples"),
            (
                TEN,
                {"test": made([0, 1], images=LARGER)},
                r"x, test: images .* shape .*\(1, 2, 2\); found \(2, 1, 3, 3\)",
            ),
            (made([0] * 20), {"classes": "0"}, r"wanted two classes or more, found '0'\."),
            (TEN, {}, r"dataset\.val_share=0\.1 cannot be cut from 8 examples of 2 classes, .* of 4"),
            *(
                (made([0, 1] * 50), {"test": TWO, "val_share": share}, r"dataset\.val_share=")
                for share in (0.0, 1.0, -0.5)
            ),
        ],
    )
    def test_refuses_what_does_not_fit_together(self, split: Split, changes: dict[str, Any], words: str) -> None:
        with pytest.raises(ConfigError, match=words):
            assembled(split, **changes)

    def test_the_digest_is_of_every_pixel_label_and_split(self) -> None:
        same, pixel, other = made([0, 1] * 50), made([0, 1] * 50), made([1, 0] * 50)
        pixel.images[99, 0, 1, 1] ^= 1
        assert assembled(same).sha256 == assembled(made([0, 1] * 50)).sha256
        others = [assembled(same, split_seed=1), assembled(same, val_share=0.2)]
        assert len({data.sha256 for data in (assembled(same), assembled(pixel), assembled(other), *others)}) == 5


class TestPick:
    def test_keeps_each_class_by_its_share_in_order(self) -> None:
        labels = np.repeat([0, 1], [80, 40])  # sorted by class: the first rows would be one class alone
        kept = pick(labels, 30, 0, "dataset.max_train")
        assert np.bincount(labels[kept]).tolist() == [20, 10] and (np.diff(kept) > 0).all()

    def test_keeps_all_where_there_are_no_more(self) -> None:
        assert pick(np.array([0, 1]), 2, 0, "").tolist() == pick(np.array([0, 1]), None, 0, "").tolist() == [0, 1]

    @pytest.mark.parametrize("limit", [0, 1, -3])
    def test_refuses_fewer_than_one_a_class(self, limit: int) -> None:
        with pytest.raises(ConfigError, match=rf"dataset\.max_train={limit} cannot be cut from 4 examples"):
            pick(np.array([0, 0, 1, 1]), limit, 0, "dataset.max_train")


def test_a_huge_label_does_not_become_as_many_classes() -> None:
    assert numbered(np.array([0, 1, 10**12])) == ("0", "1", "2", "3")


def test_more_than_a_quarter_of_the_memory_is_refused() -> None:
    check_memory("x", 10**6)
    with pytest.raises(ConfigError, match=r"x: decoded it would take 1000000\.0 GB"):
        check_memory("x", 10**15)


def test_a_hostile_data_set_ends_a_run_before_it_starts(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", images=np.array([object()]), labels=np.zeros(1, np.int64))
    (tmp_path / "mine.yaml").write_text(f"dataset: {{name: npz, folder: {tmp_path}}}\n")
    with pytest.raises(ConfigError, match=r"data\.npz: array 'images' holds pickled objects"):
        prepare(compose({"task": str(tmp_path / "mine.yaml"), "backend": "analytic", "searcher": "random"}))


class TestOrder:
    """An image's pixels are its number; labels are 0 to 4."""

    def split(self, *labels: int) -> Split:
        return Split(np.arange(len(labels), dtype=np.uint8)[:, None, None, None], np.array(labels))

    def test_no_split_stays_in_the_order_of_its_classes(self) -> None:
        by_class = self.split(*[label for label in (3, 0, 4, 1, 2) for _ in range(40)])
        data = assembled(by_class, "abcde", val=by_class, test=by_class)
        for split in (data.train, data.val, opened(data)):
            assert len(set(split.labels[:32].tolist())) == 5
            assert (by_class.labels[split.images[:, 0, 0, 0]] == split.labels).all()
            assert sorted(split.images[:, 0, 0, 0]) == list(range(200))

    def test_the_order_depends_on_the_seed_alone(self) -> None:
        by_class = self.split(*[0] * 100, *[1] * 100)
        one, again, other = (shuffled(by_class, seed).images.tobytes() for seed in (1, 1, 2))
        assert one == again != other

    def test_a_mixed_split_is_left_as_it_is(self) -> None:
        few_of_one = self.split(*([0] * 9 + [1]) * 20)
        assert shuffled(few_of_one, 0) is few_of_one
