"""Sizes that a graph works out from sizes: constants, since its images have a fixed shape.

ONNX's shape inference follows such arithmetic only in part. Here it is done in numpy, on a few values at a time, so
that a graph is judged before anything of it is run.
"""

import math
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from automcu_ray.deploy.graph_editor import Array

_MOST = 64  # values of one size: a shape has some five
_ROUNDS = 16  # each gives the shapes of which the next sizes are worked out
_ARITHMETIC = frozenset(
    """Add And Cast Ceil Concat Div Equal Floor Gather Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul
    Neg Not Or ReduceProd Reshape Slice Squeeze Sub Transpose Unsqueeze Where""".split()
)


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the shapes of its intermediates, and with the sizes that follow from them as constants.

    Raises:
        onnx.shape_inference.InferenceError: shapes or types that contradict each other.
    """
    for _ in range(_ROUNDS):
        try:
            inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        except ValueError as error:  # an attribute names a type that does not exist
            raise onnx.shape_inference.InferenceError(str(error)) from error
        if not _work_out(inferred):
            break
        model = inferred
        del model.graph.value_info[:]
    return inferred


def _work_out(model: onnx.ModelProto) -> bool:
    """Put constants in the place of operators on a few constants, in place; return whether there were any."""
    graph = model.graph
    small = [tensor for tensor in graph.initializer if math.prod(tensor.dims) <= _MOST]
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in small}
    shapes = {value.name: value.type.tensor_type.shape.dim for value in (*graph.input, *graph.value_info)}
    found = False
    for node in list(graph.node):
        value = None
        if node.op_type == "Constant":
            constant = numpy_helper.to_array(node.attribute[0].t)
            known |= {node.output[0]: constant} if constant.size <= _MOST else {}
        elif node.op_type == "Shape":
            sizes = [dim.dim_value for dim in shapes.get(node.input[0], [])]
            value = np.array(sizes, np.int64) if sizes and all(sizes) and not node.attribute else None
        elif len(node.output) == 1 and all(not name or name in known for name in node.input):
            value = _answer(node, known)
        if value is not None and value.size <= _MOST:
            known[node.output[0]] = value
            made = onnx.helper.make_node("Constant", [], list(node.output), value=numpy_helper.from_array(value))
            node.CopyFrom(made)
            found = True
    return found


def _answer(node: NodeProto, known: Mapping[str, Array]) -> Array | None:
    """Return what an operator gives; None where it is not one of these, or gives more than a few values."""
    inputs = {name: known[name] for name in node.input if name}
    sizes = next(iter(inputs.values()), np.zeros(0))
    filled = node.op_type == "ConstantOfShape" and sizes.size and 0 < math.prod(sizes.tolist()) <= _MOST
    if node.op_type not in _ARITHMETIC and not filled:
        return None
    try:
        with np.errstate(all="ignore"):
            answer: Array = ReferenceEvaluator(node).run(None, inputs)[0]
    except Exception:  # of whatever a stranger wrote: then it stays unknown
        return None
    return answer if isinstance(answer, np.ndarray) else None
