"""What every data set keeps to, wherever its images come from. Inherit, and say how to load a small one."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.records.events import TestRead
from automcu_ray.records.journal import Repository
from automcu_ray.runtime.plugins import check_options
from trainables.datasets.base import Dataset, Split


def opened(data: Dataset, journal: Repository | None = None) -> Split:
    """Return the test split, read by a test."""
    return data.test.open("a test", Repository() if journal is None else journal)


def rows(split: Split) -> set[bytes]:
    """Return the images of a split as what can be compared."""
    return {image.tobytes() for image in split.images}


class DatasetContract:
    """`load` is the function that the table of data sets names; `options` are those of a small one without twins.

    `splits_by_seed` is False where files or names say what is in which split.
    """

    load: Callable[..., Dataset]
    splits_by_seed = True

    def options(self) -> dict[str, Any]:
        return {}

    def make(self, **changes: Any) -> Dataset:
        return self.load(**{**self.options(), **changes})

    def test_splits_are_uint8_images_of_one_shape_and_a_label_each(self) -> None:
        data = self.make()
        for split in (data.train, data.val, opened(data)):
            assert split.images.dtype == np.uint8 and split.images.shape == (len(split), *data.input_shape)
            assert split.labels.dtype == np.int64 and split.labels.shape == (len(split),)
            assert set(split.labels.tolist()) == set(range(len(data.classes))), "each class is in each split"

    def test_splits_share_no_image(self) -> None:
        data = self.make()
        train, val, test = (rows(split) for split in (data.train, data.val, opened(data)))
        assert not (train & val or train & test or val & test)

    def test_pixels_use_their_range(self) -> None:
        images = self.make().train.images
        assert images.max() - images.min() > 100, "pixels are 0 to 255, not 0 to 1"

    def test_the_test_split_opens_once_the_journal_says_so_and_is_sent_nowhere(self) -> None:
        data, journal = self.make(), Repository()
        assert len(opened(data, journal)) == len(data.test) > 0
        assert journal.last(TestRead)
        with pytest.raises(TypeError, match="does not leave the process"):
            pickle.dumps(data)

    def test_the_same_options_give_the_same_digest_and_another_seed_another_split(self) -> None:
        data, again = self.make(), self.make()
        assert data.about == again.about and data.about["sha256"] == data.sha256
        assert data.about["train"] == len(data.train)
        assert not self.splits_by_seed or self.make(split_seed=1).sha256 != data.sha256

    def test_an_option_that_it_does_not_have_is_an_error(self) -> None:
        with pytest.raises(ConfigError, match="unknown dataset option 'no_such'"):
            check_options("dataset", "it", self.load, {"no_such": 1})
