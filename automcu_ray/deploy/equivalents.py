"""Operators that the int8 quantiser does not know, written as equal ones that it does."""

from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np
import onnx
from onnx import NodeProto, helper

from automcu_ray.deploy import moving_equivalents as moving
from automcu_ray.deploy import product_equivalents as products
from automcu_ray.deploy.graph_editor import Chain, Editor, options_of


def use_equivalents(model: onnx.ModelProto) -> None:
    """Rewrite a traced model in place; it gives the same values (up to rounding) as before."""
    editor, pending = Editor(model), list(model.graph.node)
    while pending:
        node = pending.pop(0)
        made = _REWRITES[node.op_type](editor, node) if node.op_type in _REWRITES else None
        if made is None:
            continue
        at = list(model.graph.node).index(node)
        model.graph.node.remove(node)
        for number, one in enumerate(made):
            model.graph.node.insert(at + number, one)
        new = [model.graph.node[at + number] for number in range(len(made))]
        pending[:0] = [one for one in new if one.op_type != node.op_type]
        editor.refresh()
    read = {name for node in model.graph.node for name in node.input}
    for tensor in [tensor for tensor in model.graph.initializer if tensor.name not in read]:
        model.graph.initializer.remove(tensor)


def _reduce(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """A mean, sum or maximum over axes: pooling of as many pixels."""
    options, shape = options_of(node), editor.shapes.get(node.input[0], ())
    axes = options.get("axes")
    if len(node.input) > 1:
        axes = editor.constants.get(node.input[1])
    if axes is None or shape.count(0) != 1:
        return None
    images = shape.index(0)  # behind the steps of a recurrent layer, else first
    reduced = sorted({int(axis) % len(shape) for axis in axes})
    kept = [axis for axis in range(len(shape)) if axis not in (images, *reduced)]
    kind, keeps = node.op_type, bool(options.get("keepdims", 1))
    if not reduced or images in reduced or (images and (keeps or reduced[:images] != list(range(images)))):
        return None
    chain, count = Chain(editor, node, node.input[0]), prod(shape[axis] for axis in reduced)
    planes = len(shape) == 4 and reduced == [2, 3]
    if not planes:
        if [images, *kept, *reduced] != list(range(len(shape))):
            chain.then("Transpose", perm=[images, *kept, *reduced])
        chain.reshaped(prod(shape[axis] for axis in kept), count, 1)
    if kind == "ReduceMax":
        chain.then("MaxPool", kernel_shape=list(shape[2:]) if planes else [count, 1])
    else:
        chain.then("GlobalAveragePool")
    if kind == "ReduceSum":
        chain.then("Mul", np.array(count, np.float32))
    every = [axis for axis in range(len(shape)) if axis != images and (keeps or axis not in reduced)]
    left = [1 if axis in reduced else shape[axis] for axis in every]
    if planes and not keeps:
        chain.then("Flatten", axis=1)
    elif not planes:
        chain.reshaped(*left)
    return chain.done()


def _global_max(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    shape = editor.shapes.get(node.input[0], ())
    if len(shape) < 3 or not all(shape[1:]):
        return None
    return Chain(editor, node, node.input[0]).then("MaxPool", kernel_shape=list(shape[2:])).done()


def _norm(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """A BatchNorm that is still there: into the linear layer before it, or a convolution, or a product and a sum."""
    values = [editor.constants.get(name) for name in node.input[1:]]
    rank = len(editor.shapes.get(node.input[0], ()))
    if any(value is None for value in values) or rank < 2:
        return None
    scale, bias, mean, variance = (np.asarray(value, np.float64) for value in values)
    slope = scale / np.sqrt(variance + options_of(node).get("epsilon", 1e-5))
    offset = bias - mean * slope
    before = editor.maker(node.input[0])
    if rank == 2 and before is not None and before.op_type == "Gemm" and len(editor.readers(node.input[0])) == 1:
        options = options_of(before)
        plain = options.get("alpha", 1.0) == options.get("beta", 1.0) == 1.0
        weights, first = (editor.constants.get(name) for name in (*before.input[1:3], "")[:2])
        if plain and weights is not None and (first is not None or len(before.input) < 3):
            along = weights * (slope[:, None] if options.get("transB") else slope[None, :])
            offset = offset + (0 if first is None else first * slope)
            names = [editor.constant(node.name, value.astype(np.float32)) for value in (along, offset)]
            editor.graph.node.remove(before)
            made = helper.make_node("Gemm", [before.input[0], *names], [node.output[0]], name=before.name)
            made.attribute.extend(before.attribute)
            return [made]
    chain = Chain(editor, node, node.input[0])
    if rank == 4:
        parts = slope.reshape(-1, 1, 1, 1).astype(np.float32), offset.astype(np.float32)
        return chain.then("Conv", *parts, kernel_shape=[1, 1], group=len(slope)).done()
    axes = (-1, *[1] * (rank - 2))
    chain.then("Mul", slope.reshape(axes).astype(np.float32))
    return chain.then("Add", offset.reshape(axes).astype(np.float32)).done()


def _normalised(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """A norm over the values of one image (layer, instance; of groups, too): mean, variance, and what follows."""
    options, rank = options_of(node), len(editor.shapes.get(node.input[0], ()))
    layer = node.op_type == "LayerNormalization"
    axes = list(range(options.get("axis", -1) % max(1, rank), rank)) if layer else list(range(2, rank))
    weights = [editor.constants.get(name) for name in node.input[1:]]
    if not axes or 0 in axes or any(weight is None for weight in weights) or len(node.output) > 1:
        return None
    image, result, name = node.input[0], node.output[0], node.name
    made: list[NodeProto] = []

    def give(kind: str, what: str, *sources: str, **attributes: object) -> str:
        made.append(helper.make_node(kind, sources, [f"{result}_{what}"], name=f"{name}_{what}", **attributes))
        return f"{result}_{what}"

    mean = give("ReduceMean", "mean", image, axes=axes, keepdims=1)
    apart = give("Sub", "apart", image, mean)
    variance = give("ReduceMean", "variance", give("Mul", "square", apart, apart), axes=axes, keepdims=1)
    epsilon = editor.constant(name, np.array(options.get("epsilon", 1e-5), np.float32))
    inverse = give("Reciprocal", "inverse", give("Sqrt", "root", give("Add", "positive", variance, epsilon)))
    if not layer:  # a flat image's inverse is huge and takes all steps of int8 from the others': roots spread less
        inverse = give("Sqrt", "inverse_root", inverse)
        apart = give("Mul", "half", apart, inverse)
    last = give("Mul", "unit", apart, inverse)
    for kind, weight in zip(("Mul", "Add"), weights, strict=False):
        if weight is not None and not np.array_equal(weight, np.full_like(weight, kind == "Mul")):
            shaped = weight if layer else weight.reshape(-1, *[1] * (rank - 2))
            last = give(kind, f"{kind}_{len(made)}", last, editor.constant(name, shaped))
    made[-1].output[0], made[-1].name = result, name
    return made


def _difference(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """A difference of two tensors: a + (-1) * b. Of one tensor it is a function, which becomes a table."""
    first, second = node.input
    if any(editor.constants[name].size == 1 for name in node.input if name in editor.constants):
        return None
    if second in editor.constants:
        return Chain(editor, node, first).then("Add", -editor.constants[second]).done()
    negative = Chain(editor, node, second).then("Mul", np.array(-1, np.float32))
    total = helper.make_node("Add", [first, negative.at], [node.output[0]], name=node.name)
    return [*negative.nodes, total]


def _quotient(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    divisor = editor.constants.get(node.input[1])
    if divisor is None or divisor.size == 1 or divisor.dtype != np.float32:
        return None
    return Chain(editor, node, node.input[0]).then("Mul", 1 / divisor).done()


def _leak(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """A PReLU with a slope a channel: relu(x) + slope * min(x, 0)."""
    slope = editor.constants.get(node.input[1])
    if slope is None or slope.size == 1:
        return None
    low = Chain(editor, node, node.input[0]).then("Min", np.array(0, np.float32)).then("Mul", slope)
    high = f"{node.output[0]}_high"
    parts = helper.make_node("Relu", [node.input[0]], [high], name=f"{node.name}_high")
    total = helper.make_node("Add", [high, low.at], [node.output[0]], name=node.name)
    return [*low.nodes, parts, total]


def _transposed_convolution(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """A convolution that gives the pixels between as channels, which are then moved between, and cropped."""
    options, shape = options_of(node), editor.shapes.get(node.input[0], ())
    weights = editor.constants.get(node.input[1])
    bias = editor.constants.get(node.input[2]) if len(node.input) > 2 else None
    result = editor.shapes.get(node.output[0], ())
    if len(shape) != 4 or weights is None or options.get("group", 1) != 1 or set(options.get("dilations", [1])) != {1}:
        return None
    if not all(shape[1:]) or not all(result[1:]) or options.get("auto_pad", b"NOTSET") != b"NOTSET":
        return None
    inputs, outputs, *kernel = weights.shape
    strides, pads = options.get("strides", [1, 1]), options.get("pads", [0] * 4)
    taps = [-(-size // stride) for size, stride in zip(kernel, strides, strict=True)]
    made = np.zeros((outputs, *strides, inputs, *taps), np.float32)
    for row, column in product(*map(range, kernel)):  # the last tap reads the first pixel
        (i, a), (j, b) = divmod(row, strides[0]), divmod(column, strides[1])
        made[:, a, b, :, taps[0] - 1 - i, taps[1] - 1 - j] = weights[:, :, row, column].T
    parts = [made.reshape(-1, inputs, *taps)]
    if bias is not None:
        parts.append(np.repeat(bias, prod(strides)))
    around = [taps[0] - 1, taps[1] - 1] * 2
    chain = Chain(editor, node, node.input[0]).then("Conv", *parts, kernel_shape=taps, pads=around)
    high, wide = (size + tap - 1 for size, tap in zip(shape[2:], taps, strict=True))
    if prod(strides) > 1:
        chain.reshaped(outputs, *strides, high, wide).then("Transpose", perm=[0, 1, 4, 2, 5, 3])
        chain.reshaped(outputs, high * strides[0], wide * strides[1])
    for axis, whole, start in ((2, high * strides[0], pads[0]), (3, wide * strides[1], pads[1])):
        if result[axis] + start > whole:
            return None
        if (start, result[axis]) != (0, whole):
            chain.then("Gather", np.arange(start, start + result[axis]), axis=axis)
    return chain.done()


_REWRITES: dict[str, Callable[[Editor, NodeProto], list[NodeProto] | None]] = {
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax"), _reduce),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), moving.shuffle),
    "GlobalMaxPool": _global_max,
    "BatchNormalization": _norm,
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization"), _normalised),
    "Sub": _difference,
    "Div": _quotient,
    "PRelu": _leak,
    "MatMul": products.linear,
    "CumSum": products.running_sum,
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceMin", "ReduceProd"), products.reduced),
    **dict.fromkeys(("LogSoftmax", "ReduceLogSumExp"), products.log_of_exponentials),
    **dict.fromkeys(("Max", "Min"), products.extreme),
    "ConvTranspose": _transposed_convolution,
    "Pad": moving.padding,
    "Slice": moving.cut,
    "Gather": moving.taken,
    "Tile": moving.repeated,
    "Expand": moving.expanded,
    "Resize": moving.resized,
    "Cast": moving.same_type,
}
