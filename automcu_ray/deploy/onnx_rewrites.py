"""An edit that the int8 quantiser needs."""

from collections import Counter
from collections.abc import Container

import onnx
from onnx import helper

# What computes new values, whose range the quantiser takes from their calibration.
_RANGED = ("Conv", "Gemm", "MatMul", "Add", "Mul", "Concat", "AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid")


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
