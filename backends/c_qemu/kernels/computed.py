"""Layers that read nothing but what was computed: products of two matrices, softmax, quotients, maxima of two."""

from math import prod

import numpy as np

from automcu_ray.sizing.peak_memory import IN_PLACE
from automcu_ray.sizing.scratch import ALIGNMENT
from backends.c_qemu.kernels import pointwise
from backends.c_qemu.kernels.layer import Array, Field, Layer, Variant

Shape = tuple[int, ...]
STRIP = 16  # columns at a time: a row is added up again for each strip, for 3 of some 26 instructions of four columns
_WHOLE_BITS = 20  # of a softmax's divisor, which are zero
_EVERY = np.arange(-128, 128, dtype=np.int8)


def matrices(
    node: str,
    names: tuple[str, str],
    y: str,
    shapes: tuple[Shape, Shape],
    scale: np.float32,
    zeros: tuple[int, int, int],
    variant: Variant,
) -> Layer:
    """Return the products of two stacks of matrices; `zeros` are the zero points of first, second and result.

    Raises:
        ValueError: one of the stacks is repeated, but not as a whole.
    """
    (*before_a, rows, depth), (*before_b, _, columns) = shapes
    counts = prod(before_a), prod(before_b)
    if min(counts) > 1 and [size for size in before_a if size > 1] != [size for size in before_b if size > 1]:
        raise ValueError
    strip = min(columns, STRIP)
    fields: dict[str, Field] = {
        "count": max(counts),
        "a_step": rows * depth if counts[0] > 1 else 0,
        "b_step": depth * columns if counts[1] > 1 else 0,
        "b_down": columns,
        "b_across": 1,
        "rows": rows,
        "depth": depth,
        "columns": columns,
        "strip": strip,
        **dict(zip(("a_zero", "b_zero", "y_zero"), zeros, strict=True)),
        "scale": float(scale),
    }
    row_bytes = depth + -depth % 4 if variant == "dsp" else depth
    scratch = strip * (12 + row_bytes) + ALIGNMENT - 1
    bound = float(scale) * 255 * 255 * depth
    return Layer(
        node, "multiply_matrices", "matrices", names, y, fields, {}, scratch, np.array([scale], np.float32), bound
    )


def softmax(node: str, x: str, y: str, shape: Shape, axis: int, exponentials: Array, whole: int, zero: int) -> Layer:
    """Return a softmax along an axis, by its integer function's constants."""
    fields: dict[str, Field] = {
        "exponentials": exponentials.astype(np.int32),
        "outer": prod(shape[:axis]),
        "inner": prod(shape[axis + 1 :]),
        "size": shape[axis],
        "whole": whole >> _WHOLE_BITS,
        "y_zero": zero,
    }
    return Layer(node, "softmax", "softmax", (x,), y, fields, {x: IN_PLACE} if fields["inner"] == 1 else {})


def ratio(
    node: str, names: tuple[str, str], y: str, shapes: tuple[Shape, Shape], written: Shape, constants: tuple[Array, ...]
) -> Layer:
    """Return a quotient, by its integer function's constants."""
    zero_a, factors, zero = constants
    numbers: dict[str, Field] = {"zero_a": int(zero_a), "factors": np.roll(factors, 128), "y_zero": int(zero)}
    return pointwise.pairs(node, "ratio", names, y, shapes, written, numbers, "values")


def extreme(
    node: str,
    kernel: str,
    names: tuple[str, str],
    y: str,
    shapes: tuple[Shape, Shape],
    written: Shape,
    constants: tuple[Array, ...],
) -> Layer:
    """Return the larger or smaller values of two tensors, by the integer function's tables."""
    tables = [np.roll(table, 128) for table in constants]
    kept = [None if np.array_equal(table, _EVERY) else table for table in tables]
    numbers = dict(zip(("table_a", "table_b"), kept, strict=True))
    return pointwise.pairs(node, kernel, names, y, shapes, written, numbers, "values")
