"""A recording fed to the board as a sensor would, compared window by window with Python."""

from pathlib import Path

import numpy as np

from automcu_ray.core.errors import BoardError
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.task import Task
from automcu_ray.records.record import StreamResult
from automcu_ray.signals.front_end import Samples, windows
from backends.boards.base import Board


def feed_recording(
    board: Board, elf: Path, task: Task, deployed: DeployedNetwork, recording: Samples
) -> StreamResult | None:
    """Feed samples (n, channels) to a board's stream; return how many answers equal Python's, byte for byte.

    None where no samples are taken in: the task has no front end, or the network is not int8.

    Raises:
        BoardError: the board did not answer as agreed, or the recording is shorter than a window.
    """
    front_end = task.front_end
    if front_end is None or deployed.precision != "int8":
        return None
    if len(recording) < front_end.span:
        raise BoardError(f"a recording of {front_end.span} samples or more is wanted, found {len(recording)}.")
    every = front_end.step * max(1, front_end.steps // 2)  # a stream by steps answers once in half a window
    expected = deployed.run(windows(front_end, recording, every))
    ends = [front_end.span + every * index for index in range(len(expected))]
    parts = np.split(recording[: ends[-1]], ends[:-1])
    outputs = len(expected[0])
    run = board.stream(elf, task.target, parts, input_bytes=int(np.prod(deployed.input_shape)), outputs=outputs)
    return StreamResult(
        windows=len(expected),
        bit_equal_windows=int((run.outputs == expected).all(axis=1).sum()),
        seconds_of_samples=ends[-1] / front_end.rate_hz,
        seconds_between=every / front_end.rate_hz,
        front_end_instructions=run.instructions,
    )
