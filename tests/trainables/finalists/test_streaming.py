"""A recording fed to a board in parts, and counted where its answers are Python's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from automcu_ray.core.errors import BoardError
from automcu_ray.deploy.export import DeployedNetwork, deploy
from automcu_ray.problem.task import Task
from automcu_ray.signals.front_end import SampleWindow
from backends.boards.base import BoardRun
from trainables.finalists.streaming import feed_recording

WINDOW = SampleWindow(
    names=("x", "y"), units_per_count=(1, 1), factors=(60, -90), offsets=(1 << 23, 1 << 23), rate_hz=10, length=8
)
RECORDING = np.random.default_rng(0).integers(-20_000, 20_000, (29, 2), dtype=np.int16)


class Windowing:
    """A board that does in Python what the firmware does; some of its answers are wrong."""

    def __init__(self, deployed: DeployedNetwork, wrong: int = 0) -> None:
        self.deployed, self.wrong, self.parts = deployed, wrong, list[int]()

    def stream(self, elf: Path, target: Any, parts: list[NDArray[np.int16]], *, input_bytes: int, outputs: int) -> Any:
        assert (input_bytes, outputs) == (16, 3)
        self.parts = [len(part) for part in parts]
        ends = np.cumsum(self.parts)
        seen = np.concatenate(parts)
        answers = self.deployed.run(np.stack([WINDOW.window(seen[end - 8 : end]) for end in ends]))
        answers[: self.wrong] ^= 1
        return BoardRun(answers, 500, 100, 0.1)


@pytest.fixture(scope="module")
def deployed() -> DeployedNetwork:
    torch.manual_seed(0)
    pictures = np.random.default_rng(1).integers(0, 256, (8, 2, 1, 8), dtype=np.uint8)
    network = nn.Sequential(nn.Conv2d(2, 4, (1, 3)), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3))
    return deploy(network, (2, 1, 8), precision="int8", calibration=pictures)


@pytest.mark.parametrize("wrong", [0, 2])
def test_windows_each_half_window_are_compared_byte_by_byte(
    deployed: DeployedNetwork, digits_task: Task, wrong: int
) -> None:
    board: Any = Windowing(deployed, wrong)
    found = feed_recording(board, Path(), digits_task.replace(front_end=WINDOW), deployed, RECORDING)
    assert found is not None and board.parts == [8, 4, 4, 4, 4, 4]  # a whole window, then half a one each
    assert (found.windows, found.bit_equal_windows) == (6, 6 - wrong)
    assert (found.seconds_of_samples, found.seconds_between, found.front_end_instructions) == (2.8, 0.4, 500)


def test_no_front_end_no_stream_and_a_recording_that_is_too_short(deployed: DeployedNetwork, digits_task: Task) -> None:
    board: Any = Windowing(deployed)
    assert feed_recording(board, Path(), digits_task, deployed, RECORDING) is None
    with pytest.raises(BoardError, match="of 8 samples or more is wanted, found 7"):
        feed_recording(board, Path(), digits_task.replace(front_end=WINDOW), deployed, RECORDING[:7])
