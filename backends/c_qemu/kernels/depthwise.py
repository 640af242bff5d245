"""Depthwise convolutions: three ways to read rows, each with its fields and scratch in bytes."""

import numpy as np

from automcu_ray.sizing.scratch import ALIGNMENT, row_values
from backends.c_qemu.kernels.layer import Field
from backends.c_qemu.kernels.window import Quantised, Window


def strips(window: Window, quantised: Quantised, strip: int) -> tuple[dict[str, Field], int]:
    """Return the fields and scratch where the rows that `strip` output rows read are copied."""
    row_step = _row_step(window)
    fields = _by_channel(window, quantised) | {"strip": strip, "row_step": row_step}
    rows = (strip - 1) * window.stride[0] + window.reach[0] + 1
    return fields, rows * row_step + ALIGNMENT - 1


def ring(window: Window, quantised: Quantised) -> tuple[dict[str, Field], int]:
    """Return the fields and scratch where each row is copied once, into a ring of 16-bit values."""
    row_step, rows = _row_step(window), window.reach[0] + 1
    fields = _by_channel(window, quantised) | {"weights_step": rows * row_step, "row_step": row_step}
    is_five_wide = window.kernel[1] == window.reach[1] + 1 == 5 and window.stride[1] == 1
    words = 4 if is_five_wide else -(-(window.reach[1] + 1) // 2)
    taps = window.written[0] // window.groups * window.kernel[0] * words
    return fields, 4 * taps + 2 * rows * row_step + ALIGNMENT - 1


def is_apart(window: Window) -> bool:
    """Whether a depthwise window is three by three, read where it lies, two columns from neighbour to neighbour."""
    return window.kernel == (3, 3) and window.reach == (2, 2) and window.stride[1] == 2 and window.read[2] >= 4


def apart(window: Window, quantised: Quantised) -> tuple[dict[str, Field], int]:
    """Return the fields and scratch: taps in six words, pieces of three rows, a row of padding."""
    return _by_channel(window, quantised), 24 + 36 + window.read[2] + ALIGNMENT - 1


def _row_step(window: Window) -> int:
    return row_values(window.read, window.written, window.stride[1], window.pad[1], window.reach[1])


def _by_channel(window: Window, quantised: Quantised) -> dict[str, Field]:
    return {
        "weights": quantised.weights.reshape(-1),
        "biases": quantised.folded.astype(np.int32),
        "scales": quantised.scales,
        "span_w": window.reach[1] + 1,
    }
