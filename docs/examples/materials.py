"""Photographs of three materials, cut from images that scikit-image ships: python materials.py data/materials.

Training, validation and test come from parts of a photograph that do not touch.
"""

import sys
from pathlib import Path

import numpy as np
from skimage import data, io

SIDE, PARTS = 64, {"train": (0, 308, 300), "val": (308, 410, 60), "test": (410, 512, 60)}  # columns from, to; pictures
rng = np.random.default_rng(0)
for material in ("brick", "grass", "gravel"):
    photograph = getattr(data, material)()  # 512 x 512, grey
    for part, (left, right, count) in PARTS.items():
        folder = Path(sys.argv[1]) / part / material
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            row, column = rng.integers(0, 512 - SIDE), rng.integers(left, right - SIDE)
            tile = photograph[row : row + SIDE, column : column + SIDE]
            io.imsave(folder / f"{number:03}.png", np.rot90(tile, rng.integers(4)), check_contrast=False)
