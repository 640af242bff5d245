"""How emx-onnx-cgen's operators pass over memory: which output may lie over which input, and what is a mere copy.

All loops run over the output in ascending order (NCHW), and a value is written after all that it is computed from
was read. Convolutions and pools can be turned round (`descending`), which changes no value. An operator that is not
listed here keeps its output apart from its inputs.
"""

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from automcu_ray.core.errors import ToolchainError
from automcu_ray.sizing.peak_memory import APART, IN_PLACE, Axis, Lag, window_lag

Shapes = Mapping[str, tuple[int, ...]]
_OUTPUT_LOOP = re.compile(r"for \(idx_t (n|g|oc|od0|od1|c|oh|ow) = 0; \1 < (\d+); \+\+\1\)")


class Copy(NamedTuple):
    """An output that holds values of the input as they are: `size` elements from element `start` on."""

    source: str
    target: str
    start: int
    size: int


def copies(op: Any, shapes: Shapes) -> list[Copy]:
    """Return an operator as copies of contiguous values; [] for one that is more than that."""
    kind = type(op).__name__
    if kind == "ReshapeOp":
        return [Copy(op.input0, op.output, 0, prod(shapes[op.output]))]
    if kind == "SplitOp" and prod(shapes[op.input0][: op.axis]) == 1:
        sizes = [prod(shapes[name]) for name in op.outputs]
        return [Copy(op.input0, name, sum(sizes[:i]), sizes[i]) for i, name in enumerate(op.outputs)]
    return []


def lags(op: Any, shapes: Shapes) -> dict[str, Lag]:
    """Return the lags, in elements, at which an operator's one output may be written over an input, by its name."""
    rule = _RULES.get(type(op).__name__)
    found = rule(op, shapes) if rule else {}
    names = op.input_names  # one that is read twice stays apart: two rules would have to hold
    return {name: lag for name, lag in found.items() if names.count(name) == 1}


def descending(function: str) -> str:
    """Return the C of a convolution or pooling with its loops over the output turned round.

    Raises:
        ToolchainError: the loops are not those that `lags` counts on.
    """
    turned, count = _OUTPUT_LOOP.subn(r"for (idx_t \1 = \2 - 1; \1 >= 0; --\1)", function)
    if count not in (4, 5):  # n, c, oh, ow; n, g, oc, od0, od1
        raise ToolchainError(f"expected 4 or 5 loops over an operator's output, found {count}: unsupported version.")
    return turned


def _convolution(op: Any, shapes: Shapes) -> dict[str, Lag]:
    if op.spatial_rank != 2 or op.batch != 1:
        return {}
    planes = (op.in_channels // op.group, op.out_channels // op.group)
    return {op.input0: window_lag(op.group, planes, *_axes(op))}


def _max_pool(op: Any, shapes: Shapes) -> dict[str, Lag]:
    if op.spatial_rank != 2 or op.batch != 1 or op.indices is not None:
        return {}
    return {op.input0: window_lag(op.channels, (1, 1), *_axes(op))}


def _axes(op: Any) -> list[Axis]:
    sides = zip(op.in_spatial, op.out_spatial, op.strides, op.pads, op.kernel_shape, op.dilations, strict=False)
    return [Axis(read, out, step, pad, (size - 1) * gap) for read, out, step, pad, size, gap in sides]


def _average_pool(op: Any, shapes: Shapes) -> dict[str, Lag]:
    if op.spatial_rank != 2 or op.batch != 1 or getattr(op, "channels_last", False):
        return {}
    rows = Axis(op.in_h, op.out_h, op.stride_h, op.pad_top, (op.kernel_h - 1) * op.dilation_h)
    columns = Axis(op.in_w, op.out_w, op.stride_w, op.pad_left, (op.kernel_w - 1) * op.dilation_w)
    return {op.input0: window_lag(op.channels, (1, 1), rows, columns)}


def _unary(op: Any, shapes: Shapes) -> dict[str, Lag]:
    return {op.input0: IN_PLACE}


def _binary(op: Any, shapes: Shapes) -> dict[str, Lag]:
    """A broadcast operand is read slower than the output is written, by all that it is smaller at the very end."""
    written = prod(shapes[op.output])
    return {name: Lag(written - prod(shapes[name]), APART.after) for name in (op.input0, op.input1)}


def _concat(op: Any, shapes: Shapes) -> dict[str, Lag]:
    """One input after the other is copied: a later one must not be reached by the copies of those before."""
    if prod(shapes[op.output][: op.axis]) != 1:
        return {}
    sizes = [prod(shapes[name]) for name in op.inputs]
    return {name: Lag(sum(sizes[:at]), APART.after) for at, name in enumerate(op.inputs)}


def _matrix(op: Any, shapes: Shapes) -> dict[str, Lag]:
    """Every output reads all of the first input, but after the last one it is not needed any more."""
    rows, columns = shapes[op.output]
    return {op.input_a: Lag(columns - 1, APART.after)} if rows == 1 else {}


def _transpose(op: Any, shapes: Shapes) -> dict[str, Lag]:
    count = prod(shapes[op.input0])
    read = np.arange(count).reshape(shapes[op.input0]).transpose(op.perm).ravel()
    return {op.input0: Lag(int((np.arange(count) - read).max(initial=0)), APART.after)}


_RULES: dict[str, Callable[[Any, Shapes], dict[str, Lag]]] = {
    "QLinearConvOp": _convolution,
    "ConvOp": _convolution,
    "MaxPoolOp": _max_pool,
    "AveragePoolOp": _average_pool,
    "QLinearAveragePoolOp": _average_pool,
    "QLinearGlobalAveragePoolOp": lambda op, _: {} if op.channels_last or op.batch != 1 else {op.input0: IN_PLACE},
    "UnaryOp": _unary,
    "ClipOp": _unary,
    "QLinearUnaryOp": _unary,
    "BinaryOp": _binary,
    "QLinearAddOp": _binary,
    "QLinearMulOp": _binary,
    "QLinearConcatOp": _concat,
    "ConcatOp": _concat,
    "GemmOp": _matrix,
    "QGemmOp": _matrix,
    "TransposeOp": _transpose,
}
