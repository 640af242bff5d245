"""What each operator between pairs is at int8: the forms that the kernels read, and what is refused by name."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from automcu_ray.deploy import moving_equivalents as moving
from automcu_ray.deploy.graph_editor import Editor, options_of
from automcu_ray.deploy.quantised.reader import Reader
from automcu_ray.deploy.quantised.values import EVERY, Array, Grid, Held, Pending, Real, outcomes
from automcu_ray.deploy.quantised.weights import convolution, linear, norm, onto_weights

_REWRITTEN: dict[str, Callable[[Editor, NodeProto], list[NodeProto] | None]] = {  # moves that kernels know otherwise
    "DepthToSpace": moving.shuffle,
    "Slice": moving.cut,
    "SpaceToDepth": moving.shuffle,
    "Tile": moving.repeated,
}


def read(reader: Reader, node: NodeProto) -> None:
    """Read one operator of a file of pairs.

    Raises:
        ToolchainError: it has no form of int8; says why.
    """
    if node.op_type in _READERS and node.op_type.endswith("Linear"):
        _READERS[node.op_type](reader, node)
    elif not reader.data(node):
        _fold(reader, node)
    elif node.op_type in ("Add", "Mul") and onto_weights(reader, node):
        pass
    elif reader.function(node):
        pass
    elif node.op_type in _READERS:
        _READERS[node.op_type](reader, node)
    elif node.op_type in _REWRITTEN:
        _rewrite(reader, node)
    else:
        reader.real(reader.data(node)[0], node)  # it reads what nothing has rounded: that is the matter
        raise reader.error(node, "it has no form of int8 here: leave it out, or give the float file")


def _fold(reader: Reader, node: NodeProto) -> None:
    """Work out an operator on constants; integers behind weights go along where they only move."""
    values = {name: array for name in node.input if name and (array := reader.held(name)) is not None}
    found, first = outcomes([node], values, {}, node.output[0]), reader.values.get(node.input[0] if node.input else "")
    made = Held(found)
    if isinstance(first, Held) and first.integers is not None and first.scales is not None:
        moved: Array | None = None
        axis = first.axis
        if node.op_type == "Transpose":
            order = options_of(node).get("perm", list(range(first.real.ndim))[::-1])
            moved, axis = first.integers.transpose(order), list(order).index(axis)
        elif node.op_type in ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze") and (
            first.scales.size == 1 or found.shape[axis : axis + 1] == first.real.shape[axis : axis + 1]
        ):
            moved = first.integers.reshape(found.shape)
        if moved is not None:
            made = replace(first, real=found, integers=moved, axis=axis)
    reader.values[node.output[0]] = made


def _rewrite(reader: Reader, node: NodeProto) -> None:
    made = _REWRITTEN[node.op_type](reader.editor, node)
    if made is None:
        raise reader.error(node, "only with constant places and known sizes does it become C")
    for one in made:
        for name in one.input:
            if name in reader.editor.constants:
                reader.values.setdefault(name, Held(reader.editor.constants[name]))
        read(reader, one)
    if not made:  # whoever read it reads its input now
        reader.values[node.output[0]] = reader.values[node.input[0]]


# Sums, products, pools ----------------------------------------------------------------------------------------------


def _pair(reader: Reader, node: NodeProto) -> None:
    a, b = (_unpadded(reader, name, node) for name in node.input)
    kind = "QLinearMul" if node.op_type == "Mul" else "QLinearAdd"
    if node.op_type == "Sub":  # minus a value is -1 minus its integer, around -1 minus its zero point
        b = Real(reader.to.table(b.name, np.invert(EVERY), f"{node.name}_minus"), Grid(b.grid.scale, -1 - b.grid.zero))

    def write(grid: Grid) -> str:
        to = reader.to
        names = [*to.operand(a), *to.operand(b), *to.grid(node.output[0], grid)]
        return to.add(kind, names, node.output[0], f"{node.name}_quant")

    reader.values[node.output[0]] = Pending(node.op_type, node, write)


def _concat(reader: Reader, node: NodeProto) -> None:
    parts = [_unpadded(reader, name, node) for name in node.input]

    def write(grid: Grid) -> str:
        names = [name for part in parts for name in reader.to.operand(part)]
        ends = reader.to.grid(node.output[0], grid)
        return reader.to.add("QLinearConcat", [*ends, *names], node.output[0], f"{node.name}_quant", **options_of(node))

    reader.values[node.output[0]] = Pending("Concat", node, write)


def _pool(reader: Reader, node: NodeProto, kind: str, options: dict[str, Any], after: tuple[NodeProto, ...]) -> None:
    x = _unpadded(reader, node.input[0], node)

    def write(grid: Grid) -> str:
        names = [*reader.to.operand(x), *reader.to.grid(node.output[0], grid)]
        return reader.to.add(kind, names, node.output[0], f"{node.name}_quant", **options)

    reader.values[node.output[0]] = Pending(node.op_type, node, write, after=after)


def _average_pool(reader: Reader, node: NodeProto) -> None:
    _pool(reader, node, "QLinearAveragePool", options_of(node), ())


def _global_pool(reader: Reader, node: NodeProto) -> None:
    _pool(reader, node, "QLinearGlobalAveragePool", {"channels_last": 0}, ())


def _mean(reader: Reader, node: NodeProto) -> None:
    options, rank = options_of(node), len(reader.editor.shapes.get(node.input[0], ()))
    axes = sorted(axis % rank for axis in options.get("axes", ())) if rank else []
    if rank < 3 or axes != list(range(2, rank)):
        raise reader.error(node, "a mean over all of height and width is wanted")
    flat = helper.make_node("Flatten", [node.output[0]], [f"{node.output[0]}_flat"], name=f"{node.name}_flat", axis=1)
    after = () if options.get("keepdims", 1) else (flat,)
    _pool(reader, node, "QLinearGlobalAveragePool", {"channels_last": 0}, after)


def _global_max(reader: Reader, node: NodeProto) -> None:
    sizes = reader.editor.shapes.get(node.input[0], ())[2:]
    reader.move(helper.make_node("MaxPool", node.input, node.output, name=node.name, kernel_shape=list(sizes)))


def _resize(reader: Reader, node: NodeProto) -> None:
    if options_of(node).get("mode", b"nearest") != b"nearest":
        raise reader.error(node, "nearest neighbours are wanted: what interpolates has no kernel")
    reader.move(node)


def _pad(reader: Reader, node: NodeProto) -> None:
    if options_of(node).get("mode", b"constant") != b"constant":
        made = moving.padding(reader.editor, node) or []
        for one in made:
            for name in one.input:
                if name in reader.editor.constants:
                    reader.values.setdefault(name, Held(reader.editor.constants[name]))
            read(reader, one)
        if made:
            return
    pads, value = (reader.held(name) for name in (*node.input[1:3], "")[:2])
    x = _unpadded(reader, node.input[0], node)
    if pads is None or (value is not None and value.any()) or (pads < 0).any() or len(pads) < 6:
        raise reader.error(node, "zeros around height and width are wanted")
    rank = len(pads) // 2
    if pads[:2].any() or pads[rank : rank + 2].any():
        raise reader.error(node, "zeros around height and width alone are wanted")
    around = (*pads[2:rank].tolist(), *pads[rank + 2 :].tolist())
    reader.values[node.output[0]] = replace(x, pads=around)


def _unpadded(reader: Reader, name: str, node: NodeProto) -> Real:
    real = reader.real(name, node)
    if any(real.pads):
        raise reader.error(node, "it reads zeros around an image (Pad), which become C within a convolution alone")
    return real


_READERS: dict[str, Callable[[Reader, NodeProto], None]] = {
    "QuantizeLinear": Reader.quantise,
    "DequantizeLinear": Reader.dequantise,
    "Conv": convolution,
    "Gemm": linear,
    "MatMul": linear,
    "BatchNormalization": norm,
    **dict.fromkeys(("Add", "Mul", "Sub"), _pair),
    "Concat": _concat,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_max,
    "ReduceMean": _mean,
    "Pad": _pad,
    "Resize": _resize,
    **dict.fromkeys(
        "Dropout Flatten Gather Identity MaxPool Reshape Split Squeeze Transpose Unsqueeze".split(), Reader.move
    ),
}
