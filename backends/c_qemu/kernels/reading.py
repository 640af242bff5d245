"""From an int8 ONNX graph to layers: one for each operator that onnxruntime's quantiser writes."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from automcu_ray.core.errors import ToolchainError
from backends.c_qemu.kernels import computed, moving, pointwise
from backends.c_qemu.kernels.layer import Array, Layer, Variant
from backends.c_qemu.kernels.node import Node, Shape
from backends.c_qemu.kernels.recurrent import recurrent
from backends.c_qemu.kernels.weighted import convolution, linear, quantised
from backends.c_qemu.kernels.window import Quantised, Window

_REPEATING = "operands that repeat along at most two stretches of axes"


def read(model: onnx.ModelProto, variant: Variant) -> tuple[list[Layer], dict[str, Shape], dict[str, Array]]:
    """Return a graph's layers in order, the shapes of all tensors, and the constants that layers read as tensors.

    `model` is for one image, with the types and shapes of all tensors.

    Raises:
        ToolchainError: an operator or a form of one that no kernel computes.
    """
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    values = [*graph.input, *graph.output, *graph.value_info]
    shapes: dict[str, Shape] = {}
    indices = {proto.output[0]: proto.input[0] for proto in graph.node if proto.op_type == "Cast"}  # of tables
    read_anywhere = {name for proto in graph.node for name in proto.input} | {graph.output[0].name}
    for value in values:
        kind = value.type.tensor_type
        if value.name not in read_anywhere:
            continue
        if kind.elem_type != onnx.TensorProto.INT8 and value.name not in indices:
            raise ToolchainError("all tensors of an int8 network should be int8, found another type between operators.")
        shapes[value.name] = tuple(dim.dim_value for dim in kind.shape.dim)
    shapes |= {name: array.shape for name, array in constants.items()}
    layers: list[Layer] = []
    for proto in graph.node:
        node = Node(proto, shapes, constants)
        node.inputs = [indices.get(name, name) for name in node.inputs]
        if node.attributes.get("channels_last", 0):
            raise node.error("its channels first")
        if node.kind not in _READERS:
            raise ToolchainError(f"int8 {node.kind} has no kernel; replace it, or choose precision float32.")
        layers += _READERS[node.kind](node, variant)
    read_here = {name for layer in layers for name in layer.reads}
    return layers, shapes, {name: array for name, array in constants.items() if name in read_here}


def _window(node: Node, groups: int, kernel: Shape | None = None) -> Window:
    """Return the window of an operator over one or two axes; one axis is a row."""
    read, written = node.shape(), node.written
    rank = len(read) - 2
    if rank not in (1, 2) or node.attributes.get("storage_order", 0):
        raise node.error("two spatial axes")
    sizes = kernel or node.ints("kernel_shape", ())
    strides, gaps = node.ints("strides", [1] * rank), node.ints("dilations", [1] * rank)
    pads = list(node.ints("pads", [0] * 2 * rank)[:rank])
    automatic = node.attributes.get("auto_pad", b"NOTSET").decode()
    if automatic.startswith("SAME"):
        for i in range(rank):
            total = max(0, (written[i + 2] - 1) * strides[i] + (sizes[i] - 1) * gaps[i] + 1 - read[i + 2])
            pads[i] = total // 2 if automatic == "SAME_UPPER" else total - total // 2

    def both(values: Sequence[int], missing: int) -> tuple[int, int]:
        first, second = ([missing] * (2 - rank)) + list(values)
        return first, second

    return Window(
        (read[1], *both(read[2:], 1)),
        (written[1], *both(written[2:], 1)),
        both(sizes, 1),
        both(strides, 1),
        both(gaps, 1),
        both(pads, 0),
        groups,
    )


def _scales(node: Node, x: int, w: int, y: int) -> Array:
    factor = np.float32(node.attributes.get("alpha", 1.0))
    return factor * node.scale(x) * node.constant(w).reshape(-1).astype(np.float32) / node.scale(y)


def _conv(node: Node, variant: Variant) -> list[Layer]:
    weights = node.constant(3)
    biases = node.constant(8) if len(node.inputs) > 8 and node.inputs[8] else None
    found = quantised(weights, node.constant(5), biases, _scales(node, 1, 4, 6), node.zero(2), node.zero(7))
    window = _window(node, node.attributes.get("group", 1), weights.shape[2:])
    return [convolution(node.name, node.inputs[0], node.output, window, found, variant)]


def _gemm(node: Node, variant: Variant) -> list[Layer]:
    if node.attributes.get("transA", 0) or len(node.inputs) < 9:
        raise node.error("an input that is not transposed, and an int8 output")
    weights = node.constant(3) if node.attributes.get("transB", 0) else node.constant(3).T
    biases = node.constant(6) if node.inputs[6] else None
    found = quantised(weights, node.constant(5), biases, _scales(node, 1, 4, 7), node.zero(2), node.zero(8))
    return [linear(node.name, node.inputs[0], node.output, node.shape()[0], found, variant)]


def _matmul(node: Node, variant: Variant) -> list[Layer]:
    if node.inputs[3] not in node.constants or node.constant(3).ndim != 2:
        return [_matrices(node, variant)]
    weights = node.constant(3)
    found: Quantised = quantised(weights.T, node.constant(5), None, _scales(node, 1, 4, 6), node.zero(2), node.zero(7))
    rows = int(np.prod(node.shape()[:-1]))
    return [linear(node.name, node.inputs[0], node.output, rows, found, variant)]


def _matrices(node: Node, variant: Variant) -> Layer:
    if min(len(node.shape(0)), len(node.shape(3))) < 2 or node.constant(4).size != 1:
        raise node.error("two matrices with a scale each")
    names, shapes = (node.inputs[0], node.inputs[3]), (node.shape(0), node.shape(3))
    scale, zeros = _scales(node, 1, 4, 6)[0], (node.zero(2), node.zero(5), node.zero(7))
    try:
        return computed.matrices(node.name, names, node.output, shapes, scale, zeros, variant)
    except ValueError:
        raise node.error("as many matrices on both sides, or one for all,") from None


def _softmax(node: Node, variant: Variant) -> list[Layer]:
    shape = node.shape()
    axis = node.ints("axes", ())[0] % len(shape)
    about = node.constant(1), int(node.constant(2)), int(node.constant(3))
    return [computed.softmax(node.name, node.inputs[0], node.output, shape, axis, *about)]


def _of_two(node: Node, variant: Variant) -> list[Layer]:
    names, shapes = (node.inputs[0], node.inputs[1]), (node.shape(0), node.shape(1))
    constants = tuple(node.constant(at) for at in range(2, len(node.inputs)))
    try:
        if node.kind == "Int8Ratio":
            return [computed.ratio(node.name, names, node.output, shapes, node.written, constants)]
        kernel = {"Int8Largest": "largest_of_two", "Int8Smallest": "smallest_of_two"}[node.kind]
        return [computed.extreme(node.name, kernel, names, node.output, shapes, node.written, constants)]
    except ValueError:
        raise node.error(_REPEATING) from None


def _max_pool(node: Node, variant: Variant) -> list[Layer]:
    if len(node.proto.output) > 1:
        raise node.error("one output")
    window = _window(node, node.shape()[1])
    return [pointwise.pool(node.name, "max_pool", node.inputs[0], node.output, window, {})]


def _average_pool(node: Node, variant: Variant) -> list[Layer]:
    window = _window(node, node.shape()[1])
    x_scale, y_scale = node.scale(1), node.scale(3)
    ends = {"x_zero": node.zero(2), "y_zero": node.zero(4)}
    if window.kernel == window.read[1:] and window.written[1:] == (1, 1) and not any(window.pad):
        return [_global(node, window, x_scale, y_scale, ends)]
    whole = int(node.attributes.get("count_include_pad", 0))
    numbers = {"x_scale": float(x_scale), "y_scale": float(y_scale), "whole_windows": whole, **ends}
    return [pointwise.pool(node.name, "average_pool", node.inputs[0], node.output, window, numbers)]


def _global_pool(node: Node, variant: Variant) -> list[Layer]:
    read = node.shape()
    image = (read[1], 1, int(np.prod(read[2:])))
    window = Window(image, (read[1], 1, 1), image[1:], (1, 1), (1, 1), (0, 0), read[1])
    return [_global(node, window, node.scale(1), node.scale(3), {"x_zero": node.zero(2), "y_zero": node.zero(4)})]


def _global(node: Node, window: Window, x_scale: np.float32, y_scale: np.float32, ends: dict[str, int]) -> Layer:
    size = window.read[1] * window.read[2]
    scale = x_scale / (y_scale * np.float32(size))
    return pointwise.global_pool(node.name, node.inputs[0], node.output, window, scale, ends)


def _add(node: Node, variant: Variant) -> list[Layer]:
    """A sum in real values, as MLAS computes it: two fused multiply-adds onto one constant (qladd_avx2.cpp)."""
    y_scale = node.scale(6)
    a, b = node.scale(1) / y_scale, node.scale(4) / y_scale
    zero_b = np.float32(b * np.float32(node.zero(5)))
    fixed = np.float32(node.zero(7)) - np.float32(
        np.float64(a) * node.zero(2) + np.float64(zero_b)
    )  # fused: rounded once
    numbers = {"scale_a": float(a), "scale_b": float(b), "fixed": float(fixed)}
    return [_pairs(node, "add", numbers)]


def _mul(node: Node, variant: Variant) -> list[Layer]:
    scale = node.scale(1) * node.scale(4) / node.scale(6)
    numbers = {"scale_a": float(scale), "scale_b": 0.0, "fixed": float(node.zero(7))}
    return [_pairs(node, "mul", numbers | {"zero_a": node.zero(2), "zero_b": node.zero(5)})]


def _pairs(node: Node, kernel: str, numbers: Mapping[str, float]) -> Layer:
    names = (node.inputs[0], node.inputs[3])
    shapes = (node.shape(0), node.shape(3))
    try:
        return pointwise.pairs(node.name, kernel, names, node.output, shapes, node.written, numbers)
    except ValueError:
        raise node.error(_REPEATING) from None


def _lookup(node: Node, variant: Variant) -> list[Layer]:
    size = int(np.prod(node.written))
    return [moving.lookup(node.name, node.inputs[0], node.output, size, moving.answers(node.proto, node.constants))]


def _gather(node: Node, variant: Variant) -> list[Layer]:
    """Values by a table of 256, or some of the places along an axis."""
    first, second = node.inputs
    if first in node.constants:
        table = node.constant(0)
        if table.shape != (256,) or table.dtype != np.int8 or second in node.constants:
            raise node.error("a table of 256 values")
        size = int(np.prod(node.written))
        return [moving.lookup(node.name, second, node.output, size, np.roll(table, 128))]  # from -128 on
    places, shape = node.constant(1), node.shape()
    axis = node.attributes.get("axis", 0) % len(shape)
    if places.ndim != 1 or not len(places):
        raise node.error("a list of places along an axis")
    return [moving.select(node.name, first, node.output, shape, axis, places % shape[axis])]


def _concat(node: Node, variant: Variant) -> list[Layer]:
    if node.kind == "Concat":
        names = node.inputs
        tables: list[Array | None] = [None] * len(node.inputs)
    else:
        names = node.inputs[2::3]
        ends = [(node.scale(3 + 3 * i), node.zero(4 + 3 * i)) for i in range(len(names))]
        tables = [moving.rescaled(scale, zero, node.scale(0), node.zero(1)) for scale, zero in ends]
    shapes = [node.shapes[name] for name in names]
    axis = node.attributes["axis"] % len(node.written)
    return [moving.concat(node.name, names, node.output, shapes, axis, tables)]


def _reshape(node: Node, variant: Variant) -> list[Layer]:
    return [moving.copied(node.name, node.inputs[0], [(node.output, int(np.prod(node.written)))])]


def _split(node: Node, variant: Variant) -> list[Layer]:
    axis = node.attributes.get("axis", 0) % len(node.shape())
    x, shape, names = node.inputs[0], node.shape(), list(node.proto.output)
    if np.prod(shape[:axis]) == 1:
        return [moving.copied(node.name, x, [(name, int(np.prod(node.shapes[name]))) for name in names])]
    ends = np.cumsum([node.shapes[name][axis] for name in names])
    places = np.split(np.arange(shape[axis]), ends[:-1])
    return [moving.select(node.name, x, name, shape, axis, part) for name, part in zip(names, places, strict=True)]


def _transpose(node: Node, variant: Variant) -> list[Layer]:
    order = node.ints("perm", list(range(len(node.shape())))[::-1])
    moved = [axis for axis in order if node.shape()[axis] != 1]
    if moved == sorted(moved):
        return _reshape(node, variant)
    return [moving.transpose(node.name, node.inputs[0], node.output, node.shape(), order)]


def _scan(node: Node, variant: Variant) -> list[Layer]:
    """A recurrent layer; the one result that is read has 8 bits."""
    starts = [node.constant(at) for at in range(len(node.inputs) - 1)]
    way = node.attributes.get("scan_input_directions", [0])[0]
    read = [name for name in node.proto.output if name in node.shapes]
    if len(read) != 1 or not starts:
        raise node.error("one result that is read")
    body = node.attributes["body"]
    return [recurrent(node.name, body, node.inputs[-1], read[0], node.shape(-1), starts, way, variant)]


def _resize(node: Node, variant: Variant) -> list[Layer]:
    shape, mode = node.shape(), node.attributes.get("mode", b"nearest")
    if len(shape) != 4 or shape[:2] != node.written[:2] or mode != b"nearest":
        raise node.error("nearest neighbours, of height and width alone,")
    return [moving.resize(node.name, node.inputs[0], node.output, node.proto, shape, node.written, node.constants)]


_READERS: dict[str, Callable[[Node, Variant], list[Layer]]] = {
    "QLinearConv": _conv,
    "QGemm": _gemm,
    "QLinearMatMul": _matmul,
    "Int8Softmax": _softmax,
    **dict.fromkeys(("Int8Ratio", "Int8Largest", "Int8Smallest"), _of_two),
    "MaxPool": _max_pool,
    "QLinearAveragePool": _average_pool,
    "QLinearGlobalAveragePool": _global_pool,
    "QLinearAdd": _add,
    "QLinearMul": _mul,
    "QLinearSigmoid": _lookup,
    "QLinearLeakyRelu": _lookup,
    "QLinearConcat": _concat,
    "Concat": _concat,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"), _reshape),
    "Split": _split,
    "Gather": _gather,
    "Cast": lambda node, variant: [],
    "Transpose": _transpose,
    "Scan": _scan,
    "Resize": _resize,
}
