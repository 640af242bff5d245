"""Every reader of data sets keeps the contract, on small data of each kind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from automcu_ray.testing.dataset_contract import DatasetContract
from tests.trainables.datasets.test_pictures import encoded, random_pixels, write_parquet
from tests.trainables.datasets.test_speech_commands import FAST, TEST, TRAIN, VAL, tone, write
from trainables.datasets.digits import digits
from trainables.datasets.image_folder import image_folder
from trainables.datasets.npz import npz
from trainables.datasets.parquet_images import parquet_images
from trainables.datasets.speech_commands import speech_commands

IMAGES, LABELS = random_pixels(40, 6, 5, 3), [number % 2 for number in range(40)]


class TestDigits(DatasetContract):
    load = staticmethod(digits)


class OfFiles(DatasetContract):
    """Data that lie in a folder of the test."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AUTOMCU_CACHE", str(tmp_path / "cache"))
        self.path = tmp_path / "data"
        self.path.mkdir()
        self.write()

    def write(self) -> None:
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        return {"folder": str(self.path)}


class TestNpz(OfFiles):
    load = staticmethod(npz)

    def write(self) -> None:
        np.savez(self.path / "data.npz", images=np.moveaxis(IMAGES, -1, 1), labels=np.array(LABELS))


class TestParquet(OfFiles):
    load = staticmethod(parquet_images)

    def write(self) -> None:
        write_parquet(self.path / "train.parquet", IMAGES, LABELS)

    def options(self) -> dict[str, Any]:
        return {**super().options(), "test": None}


class TestImageFolder(OfFiles):
    load = staticmethod(image_folder)

    def write(self) -> None:
        for number, (pixels, label) in enumerate(zip(IMAGES, LABELS, strict=True)):
            (self.path / f"class_{label}").mkdir(exist_ok=True)
            (self.path / f"class_{label}" / f"{number}.png").write_bytes(encoded(pixels))


class TestSpeechCommands(OfFiles):
    load = staticmethod(speech_commands)
    splits_by_seed = False

    def write(self) -> None:
        for word, hertz in (("yes", 900), ("no", 300)):
            for number, speaker in enumerate((*TRAIN, *VAL, *TEST)):
                write(self.path / word / f"{speaker}_nohash_0.wav", tone(hertz + 40 * number))

    def options(self) -> dict[str, Any]:
        return {**super().options(), **FAST}
