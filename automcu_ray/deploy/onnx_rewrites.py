"""Edits that the int8 quantiser needs, and onnxruntime after it."""

from collections import Counter
from collections.abc import Container
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from automcu_ray.deploy.graph_editor import Editor

# What computes new values, whose range the quantiser takes from their calibration.
_RANGED = ("Conv", "Gemm", "MatMul", "Add", "Mul", "Concat", "AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid")
_STEPS_OF_A_MEAN = 128


def rectify_copies(model: onnx.ModelProto, left_in_float: Container[str] = ()) -> None:
    """Give a Relu or Clip a copy of its input to work on where it needs one, in place; values stay the same.

    onnxruntime's quantiser leaves these two out and lets the range of their input cut what they would have cut. That
    input has to keep its range where others read it as well (pre-activation networks: a convolution reads the rectified
    value, a skip the value itself), and where it only moves values of another tensor, whose range it shares
    (`relu(max_pool(x))`). Then nothing is cut. The copy, a leaky ReLU that leaks everything, has a range of its own.
    Nodes that are `left_in_float` need none.
    """
    graph = model.graph
    readers = Counter(name for node in graph.node for name in node.input)
    ranged = {name for node in graph.node if node.op_type in _RANGED for name in node.output}
    for at, node in reversed(list(enumerate(graph.node))):
        if node.op_type not in ("Relu", "Clip") or node.name in left_in_float:
            continue
        if readers[node.input[0]] > 1 or node.input[0] not in ranged:
            copied = f"{node.output[0]}_copy"
            copy = helper.make_node("LeakyRelu", [node.input[0]], [copied], name=f"{node.name}_copy", alpha=1.0)
            node.input[0] = copied
            graph.node.insert(at, copy)


def widen_means(model: onnx.ModelProto, quantised: onnx.ModelProto) -> None:
    """Give means a scale that onnxruntime's QLinearGlobalAveragePool computes with, in place.

    It refuses one that is less than 1/256 of the sum's: means that are near zero in all images, as of what a norm gave.
    128 steps of a mean for one of a value over their count are more than enough.
    """
    shapes, tensors = Editor(model).shapes, {tensor.name: tensor for tensor in quantised.graph.initializer}
    made = {node.name: node for node in quantised.graph.node if node.op_type == "QLinearGlobalAveragePool"}
    for node in model.graph.node:
        mean = made.get(f"{node.name}_quant")
        if mean is None:
            continue
        scale, given = (float(numpy_helper.to_array(tensors[mean.input[at]])) for at in (1, 3))
        least = scale / prod(shapes[node.input[0]][2:]) / _STEPS_OF_A_MEAN
        if given < least:  # whoever reads the mean reads its scale from the same tensor
            tensor = tensors[mean.input[3]]
            tensor.CopyFrom(numpy_helper.from_array(np.array(least, np.float32), tensor.name))
