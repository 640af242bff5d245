"""Weights with their scales, and sliding windows: what convolutions and linear layers are made of."""

from dataclasses import dataclass

import numpy as np

from automcu_ray.sizing.peak_memory import Axis, Lag, window_lag
from backends.c_qemu.kernels.layer import Array


@dataclass(frozen=True)
class Quantised:
    """Weights (outputs, ...) int8 with the scales and zero points of a layer's input and output.

    `scales` are one for each output, float32: input's times weights', divided by the output's, rounded each time.
    """

    weights: Array
    biases: Array
    scales: Array
    x_zero: int
    y_zero: int

    @property
    def folded(self) -> Array:
        """Biases for inputs that keep their zero point."""
        made: Array = self.biases.astype(np.int64) - self.x_zero * self._flat.sum(axis=1)
        return made

    @property
    def bound(self) -> float:
        """The largest |sum * scale|."""
        sums = 255 * np.abs(self._flat).sum(axis=1) + np.abs(self.biases.astype(np.int64))
        return float((sums * self.scales.astype(np.float64)).max(initial=0))

    @property
    def _flat(self) -> Array:
        return self.weights.reshape(len(self.weights), -1).astype(np.int64)


@dataclass(frozen=True)
class Window:
    """A sliding window: input and output as (channels, height, width), and per axis (height, width) its numbers."""

    read: tuple[int, int, int]
    written: tuple[int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]
    groups: int

    def lag(self) -> Lag:
        """Return at which lag the output may be written over the input, in values."""
        planes = (self.read[0] // self.groups, self.written[0] // self.groups)
        rows, columns = (
            Axis(self.read[i + 1], self.written[i + 1], self.stride[i], self.pad[i], self.reach[i]) for i in (0, 1)
        )
        return window_lag(self.groups, planes, rows, columns)

    @property
    def reach(self) -> tuple[int, int]:
        """From the first to the last row, and column, of one window."""
        height, width = ((size - 1) * gap for size, gap in zip(self.kernel, self.dilation, strict=True))
        return height, width
