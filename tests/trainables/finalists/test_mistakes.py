from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.records.manifest import Mistake
from trainables.finalists.mistakes import MOST, draw, worst_mistakes

SHAPE = {"float_onnx": b"", "onnx": b"", "input_shape": (1, 2, 2), "num_classes": 3}
INT8 = DeployedNetwork(precision="int8", output_scale=0.5, output_zero_point=-3, **SHAPE)
FLOAT = DeployedNetwork(precision="float32", **SHAPE)


def test_the_surest_of_the_wrong_come_first() -> None:
    outputs = np.array([[9, 0, 0], [2, 0, 0], [0, 8, 0], [0, 0, 4]], np.int8)
    found = worst_mistakes(INT8, outputs, np.array([0, 1, 0, 0]))
    assert [(one.image, one.label, one.answer) for one in found] == [(2, 0, 1), (3, 0, 2), (1, 1, 0)]
    assert found[1].confidence == pytest.approx(np.exp(2) / (np.exp(2) + 2))
    assert worst_mistakes(FLOAT, outputs.astype(np.float32), np.array([0, 0, 1, 2])) == ()
    many = worst_mistakes(FLOAT, np.tile(np.float32([5, 0, 0]), (40, 1)), np.ones(40, np.int64))
    assert [one.image for one in many] == list(range(MOST))


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_lie_side_by_side_in_their_own_colours(channels: int, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, channels, 4, 6), np.uint8)
    draw(tuple(Mistake(image=at, label=0, answer=1, confidence=0.5) for at in (3, 1)), images, tmp_path / "x.png")
    drawn = np.round(matplotlib.image.imread(tmp_path / "x.png")[..., :3] * 255).astype(np.uint8)
    assert drawn.shape == (4, 12, 3)
    for at, image in enumerate((3, 1)):
        assert (drawn[:, 6 * at : 6 * at + 6].transpose(2, 0, 1) == np.broadcast_to(images[image], (3, 4, 6))).all()


def test_without_mistakes_or_pictures_none_is_left_of_another_run(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"old")
    draw((), np.zeros((1, 1, 4, 4), np.uint8), path)
    assert not path.exists()
    draw((Mistake(image=0, label=0, answer=1, confidence=0.5),), np.zeros((1, 3, 1, 40), np.uint8), path)
    assert not path.exists()
