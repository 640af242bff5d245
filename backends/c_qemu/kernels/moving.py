"""Layers that move values: tables, copies, concatenation, transposition, resizing."""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.sizing.peak_memory import APART, IN_PLACE, Lag
from backends.c_qemu.kernels.layer import Array, Field, Layer
from backends.c_qemu.overlaps import Copy

Shape = tuple[int, ...]
_AXES = 5
EVERY = np.arange(-128, 128, dtype=np.int8)


def answers(node: onnx.NodeProto, constants: Mapping[str, Array]) -> Array:
    """Return what onnxruntime answers for every int8 value: an operator of one input is a table of 256."""
    return _run(node, EVERY.reshape(1, -1), constants, TensorProto.INT8).reshape(-1)


def rescaled(x_scale: np.float32, x_zero: int, y_scale: np.float32, y_zero: int) -> Array | None:
    """Return every int8 value at another scale and zero point; None where nothing changes."""
    if (x_scale, x_zero) == (y_scale, y_zero):
        return None
    real = (EVERY.astype(np.float32) - np.float32(x_zero)) * x_scale
    made: Array = (np.rint(real / y_scale) + y_zero).clip(-128, 127).astype(np.int8)
    return made


def lookup(node: str, x: str, y: str, size: int, table: Array) -> Layer:
    """Return a table for every value."""
    return Layer(node, "lookup", "lookup", (x,), y, {"table": table, "size": size}, {x: IN_PLACE})


def copied(node: str, x: str, parts: Sequence[tuple[str, int]]) -> Layer:
    """Return parts of a tensor, one after the other, as tensors of their own."""
    ends = np.cumsum([size for _, size in parts]).tolist()
    copies = tuple(Copy(x, name, end - size, size) for (name, size), end in zip(parts, ends, strict=True))
    return Layer(node, "", "", (x,), parts[0][0], {}, {}, copies=copies)


def concat(
    node: str, names: Sequence[str], y: str, shapes: Sequence[Shape], axis: int, tables: Sequence[Array | None]
) -> Layer:
    """Return a concatenation: one call for each input, one after the other."""
    sizes = [prod(shape[axis:]) for shape in shapes]
    starts = [0, *np.cumsum(sizes).tolist()]
    count = prod(shapes[0][:axis])
    parts = tuple(
        {"table": table, "offset": start, "count": count, "size": size, "step": starts[-1]}
        for table, start, size in zip(tables, starts, sizes, strict=False)
    )
    lags = {name: Lag(start, APART.after) for name, start in zip(names, starts, strict=False)} if count == 1 else {}
    return Layer(node, "join", "join", tuple(names), y, {}, lags, parts=parts)


def transpose(node: str, x: str, y: str, shape: Shape, order: Sequence[int]) -> Layer:
    """Return axes in another order."""
    steps = [prod(shape[axis + 1 :]) for axis in order]
    merged: list[list[int]] = []  # count and step, neighbours that stay together merged
    for size, step in zip((shape[axis] for axis in order), steps, strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == size * step:
            merged[-1] = [merged[-1][0] * size, step]
        else:
            merged.append([size, step])
    together = merged.pop()[0] if merged and merged[-1][1] == 1 else 1
    if len(merged) > _AXES:
        raise ToolchainError(f"int8 Transpose should move at most {_AXES} axes apart to become C; found {len(merged)}.")
    merged = [[1, 0]] * (_AXES - len(merged)) + merged
    counts, strides = (tuple(column) for column in zip(*merged, strict=True))
    fields: dict[str, Field] = {"offset": 0, "size": together, "counts": counts, "steps": strides}
    count = prod(shape)
    source = np.arange(count).reshape(shape).transpose(order).ravel()
    lag = Lag(int((np.arange(count) - source).max(initial=0)), APART.after)
    return Layer(node, "transpose", "transpose", (x,), y, fields, {x: lag})


def select(node: str, x: str, y: str, shape: Shape, axis: int, places: Array) -> Layer:
    """Return some of the places along an axis, as rows of an image."""
    before, behind = prod(shape[:axis]), prod(shape[axis + 1 :])
    if before == 1 and np.array_equal(places, np.arange(places[0], places[0] + len(places))):
        copy = Copy(x, y, int(places[0]) * behind, len(places) * behind)
        return Layer(node, "", "", (x,), y, {}, {}, copies=(copy,))
    numbers = {"channels": before, "in_h": shape[axis], "in_w": behind, "out_h": len(places), "out_w": behind}
    tables = {"rows": places.astype(np.uint16), "columns": np.arange(behind, dtype=np.uint16)}
    return Layer(node, "resize", "resize", (x,), y, {**tables, **numbers}, {})


def resize(
    name: str, x: str, y: str, node: onnx.NodeProto, read: Shape, written: Shape, constants: Mapping[str, Array]
) -> Layer:
    """Return nearest neighbours: rows and columns are those that onnxruntime takes of an image that numbers them."""
    image = np.arange(read[2] * read[3], dtype=np.float32).reshape(1, 1, *read[2:]).repeat(read[1], axis=1)
    found = _run(node, image, constants, TensorProto.FLOAT)[0, 0].astype(np.int64)
    fields: dict[str, Field] = {
        "rows": (found[:, 0] // read[3]).astype(np.uint16),
        "columns": (found[0] % read[3]).astype(np.uint16),
        "channels": read[1],
        "in_h": read[2],
        "in_w": read[3],
        "out_h": written[2],
        "out_w": written[3],
    }
    return Layer(name, "resize", "resize", (x,), y, fields, {})


def _run(node: onnx.NodeProto, values: Array, constants: Mapping[str, Array], kind: int) -> Array:
    """Return onnxruntime's answer of one operator."""
    tensors = [numpy_helper.from_array(constants[name], name) for name in node.input if name in constants]
    ends = [helper.make_tensor_value_info(node.input[0], kind, values.shape), onnx.ValueInfoProto(name=node.output[0])]
    graph = helper.make_graph([node], "one", ends[:1], ends[1:], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    made: Array = session.run(None, {node.input[0]: values})[0]
    return made
