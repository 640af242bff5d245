"""Handwritten digits, 8x8 grey: 1,797 real images that scikit-learn brings along."""

import numpy as np
from sklearn.datasets import load_digits

from trainables.datasets.base import Dataset, Split, cut

MAX_VALUE = 16  # scikit-learn's pixels are counts of set pixels in 4x4 blocks


def digits(*, split_seed: int = 0, val_share: float = 0.15, test_share: float = 0.2) -> Dataset:
    """Return the UCI Optical Recognition of Handwritten Digits test set, (1, 8, 8) images in ten classes.

    Split into train, validation and test by `split_seed`, stratified; shares are of the whole.
    """
    raw = load_digits()
    images = np.round(raw.images * (255 / MAX_VALUE)).astype(np.uint8)[:, None]
    labels = raw.target.astype(np.int64)
    rest, test = cut(images, labels, test_share, split_seed)
    train, val = cut(rest.images, rest.labels, val_share / (1 - test_share), split_seed)
    return Dataset("digits", tuple("0123456789"), train, val, Split(test.images, test.labels))
