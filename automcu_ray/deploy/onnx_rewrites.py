"""Operators that would stay in float, written as equal ones that are quantised."""

from collections import Counter
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

# What computes new values, whose range the quantiser takes from their calibration.
_RANGED = ("Conv", "Gemm", "MatMul", "Add", "Mul", "Concat", "AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid")


def use_equivalents(model: onnx.ModelProto) -> None:
    """Rewrite a traced model in place; it gives the same values (up to rounding) as before.

    A mean over all pixels, `x.mean((2, 3))`, becomes global pooling. A BatchNorm that stands before its convolution,
    where it cannot be folded, becomes a depthwise convolution of one pixel.
    """
    graph = model.graph
    known = onnx.shape_inference.infer_shapes(model).graph
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in (*known.value_info, *graph.input)}
    for node in [node for node in graph.node if ranks.get(node.input[0] if node.input else "") == 4]:
        if node.op_type == "ReduceMean":
            _pool_instead_of_mean(graph, node)
        elif node.op_type == "BatchNormalization":
            _convolution_instead_of_norm(graph, node)
    used = {name for node in graph.node for name in node.input}
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)


def rectify_copies(model: onnx.ModelProto) -> None:
    """Give a Relu or Clip a copy of its input to work on where it needs one, in place; values stay the same.

    onnxruntime's quantiser leaves these two out and lets the range of their input cut what they would have cut. That
    input has to keep its range where others read it as well (pre-activation networks: a convolution reads the rectified
    value, a skip the value itself), and where it only moves values of another tensor, whose range it shares
    (`relu(max_pool(x))`). Then nothing is cut. The copy, a leaky ReLU that leaks everything, has a range of its own.
    """
    graph = model.graph
    readers = Counter(name for node in graph.node for name in node.input)
    ranged = {name for node in graph.node if node.op_type in _RANGED for name in node.output}
    for at, node in reversed(list(enumerate(graph.node))):
        if node.op_type in ("Relu", "Clip") and (readers[node.input[0]] > 1 or node.input[0] not in ranged):
            copied = f"{node.output[0]}_copy"
            copy = helper.make_node("LeakyRelu", [node.input[0]], [copied], name=f"{node.name}_copy", alpha=1.0)
            node.input[0] = copied
            graph.node.insert(at, copy)


def _pool_instead_of_mean(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    options = _options(node)
    if {axis % 4 for axis in options.get("axes", ())} != {2, 3}:
        return
    source, result = node.input[0], node.output[0]
    pooled = result if options.get("keepdims", 1) else f"{result}_pooled"
    if pooled != result:
        flat = helper.make_node("Flatten", [pooled], [result], name=f"{node.name}_flat", axis=1)
        graph.node.insert(list(graph.node).index(node) + 1, flat)
    node.CopyFrom(helper.make_node("GlobalAveragePool", [source], [pooled], name=node.name))


def _convolution_instead_of_norm(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    if any(name not in tensors for name in node.input[1:]):
        return
    scale, bias, mean, variance = (numpy_helper.to_array(tensors[name]) for name in node.input[1:])
    slope = scale / np.sqrt(variance + _options(node).get("epsilon", 1e-5))
    values = {"slope": slope.reshape(-1, 1, 1, 1), "offset": bias - mean * slope}
    names = [f"{node.output[0]}_{what}" for what in values]
    for name, value in zip(names, values.values(), strict=True):
        graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    made = helper.make_node(
        "Conv", [node.input[0], *names], [node.output[0]], name=node.name, kernel_shape=[1, 1], group=len(slope)
    )
    node.CopyFrom(made)


def _options(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
