"""Handwritten digits, 8x8 grey: 1,797 real images that scikit-learn brings along."""

import numpy as np

from trainables.datasets.base import Dataset, Split, assemble

MAX_VALUE = 16  # scikit-learn's pixels are counts of set pixels in 4x4 blocks


def digits(*, split_seed: int = 0, val_share: float = 0.15, test_share: float = 0.2) -> Dataset:
    """Return the UCI Optical Recognition of Handwritten Digits test set, (1, 8, 8) images in ten classes.

    Split into train, validation and test by `split_seed`, stratified; shares are of the whole.
    """
    from sklearn.datasets import load_digits  # seconds to import: workers that train need it not

    raw = load_digits()
    images = np.round(raw.images * (255 / MAX_VALUE)).astype(np.uint8)[:, None]
    whole = Split(images, raw.target.astype(np.int64))
    return assemble("digits", "0123456789", whole, val_share=val_share, test_share=test_share, split_seed=split_seed)
