"""Depthwise convolutions: three ways to read rows, each with its fields and scratch in bytes."""

import numpy as np

from automcu_ray.networks.graph import Shape
from automcu_ray.sizing.scratch import ALIGNMENT, dsp_depthwise_bytes, reads_apart, row_values, rows_as_one, strip_rows
from backends.c_qemu.kernels.layer import Field, Variant
from backends.c_qemu.kernels.window import Quantised, Window


def strips(window: Window, quantised: Quantised, strip: int) -> tuple[dict[str, Field], int]:
    """Return the fields and scratch where the rows that `strip` output rows read are copied."""
    row_step = _row_step(window)
    by_rows = int(strip == 1 or not rows_as_one(window.written[2]))
    fields = _by_channel(window, quantised) | {"strip": strip, "row_step": row_step, "by_rows": by_rows}
    rows = (strip - 1) * window.stride[0] + window.reach[0] + 1
    return fields, rows * row_step + ALIGNMENT - 1


def most_rows(window: Window, variant: Variant) -> int:
    """Return how many output rows are computed from one copy where there is room."""
    as_one = variant == "helium" and rows_as_one(window.written[2])
    return strip_rows(window.written[1], _row_step(window), window.stride[0], window.reach[0], as_one=as_one)


def ring(window: Window, quantised: Quantised) -> tuple[dict[str, Field], int]:
    """Return the fields and scratch where each row is copied once, into a ring of 16-bit values."""
    row_step = _row_step(window)
    cells = {"weights_step": (window.reach[0] + 1) * row_step, "row_step": row_step}
    return _by_channel(window, quantised) | cells, dsp_depthwise_bytes(*_sizes(window))


def is_apart(window: Window) -> bool:
    """Whether rows are read as they lie, two columns from neighbour to neighbour."""
    return reads_apart(*_sizes(window)[1:])


def apart(window: Window, quantised: Quantised) -> tuple[dict[str, Field], int]:
    """Return the fields and scratch where rows are read as they lie."""
    return _by_channel(window, quantised), dsp_depthwise_bytes(*_sizes(window))


def _sizes(window: Window) -> tuple[int, Shape, Shape, tuple[int, int], int, int, tuple[int, int]]:
    read = window.groups, window.read, window.written, window.kernel
    return *read, window.stride[1], window.pad[1], window.dilation


def _row_step(window: Window) -> int:
    return row_values(window.read, window.written, window.stride[1], window.pad[1], window.reach[1])


def _by_channel(window: Window, quantised: Quantised) -> dict[str, Field]:
    return {
        "weights": quantised.weights.reshape(-1),
        "biases": quantised.folded.astype(np.int32),
        "scales": quantised.scales,
        "span_w": window.reach[1] + 1,
    }
