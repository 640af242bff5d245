"""What each known ONNX operator costs, worked out from shapes: an operator without a line here is refused."""

import math
from collections.abc import Mapping
from typing import Any

import onnx

from automcu_ray.core.errors import ToolchainError

Shapes = Mapping[str, tuple[int, ...]]

RECURRENT = ("GRU", "LSTM", "RNN")
PRODUCTS = ("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul", *RECURRENT)
_WINDOWS = {"AveragePool": "kernel_shape", "MaxPool": "kernel_shape", "LRN": "size"}
# Operations for each value that goes in or comes out: 1 for what moves or compares, more for series of steps.
_BY_VALUE = {
    **dict.fromkeys(
        """Abs Add And ArgMax Cast Ceil Clip Concat Constant ConstantOfShape CumSum DepthToSpace Div Equal Expand
        Flatten Floor Gather GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual Identity LeakyRelu Less LessOrEqual
        Max Mean Min Mod Mul Neg Not Or PRelu Pad Reciprocal ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd
        ReduceSum Relu Reshape Round Shape Sign Slice SpaceToDepth Split Sqrt Squeeze Sub Sum ThresholdedRelu Tile
        Transpose Trilu Unsqueeze Where Xor""".split(),
        1,
    ),
    **dict.fromkeys("BatchNormalization HardSigmoid HardSwish InstanceNormalization LayerNormalization".split(), 4),
    **dict.fromkeys(
        """Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Log LogSoftmax Mish Pow ReduceLogSumExp Selu
        Sigmoid Sin Sinh Softmax Softplus Softsign Tan Tanh""".split(),
        16,
    ),
    "Resize": 16,  # cubic: four by four pixels
}
OPERATORS = frozenset((*PRODUCTS, *_WINDOWS, *_BY_VALUE))
PAIR = frozenset(("QuantizeLinear", "DequantizeLinear"))  # of files that are quantised already


def operations(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Return about how many operations a node takes, for as many images as the shapes are for.

    Raises:
        ToolchainError: an operator or an equation whose cost is not known.
    """
    if node.op_type in PRODUCTS:
        return macs(node, shapes)
    values = sum(math.prod(shapes[name]) for name in (*node.input, *node.output) if name)
    if node.op_type in _WINDOWS:
        window = _attributes(node).get(_WINDOWS[node.op_type], 1)
        return values + math.prod(shapes[node.output[0]]) * math.prod(window if isinstance(window, list) else [window])
    if node.op_type in _BY_VALUE or node.op_type in PAIR:
        return values * _BY_VALUE.get(node.op_type, 1)
    raise ToolchainError(f"what operator {node.op_type} costs is not known.")


def macs(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Return the multiply-accumulates of a convolution or matrix product; other operators have none.

    Raises:
        ToolchainError: an Einsum whose equation is none.
    """
    if node.op_type not in PRODUCTS:
        return 0
    if node.op_type == "Einsum":
        return _einsum(node, shapes)
    if node.op_type in RECURRENT:  # steps and images of its data, all weights of both kinds
        return math.prod(shapes[node.input[0]][:2]) * sum(math.prod(shapes[name]) for name in node.input[1:3])
    result, left, operand = shapes[node.output[0]], shapes[node.input[0]], shapes[node.input[1]]
    if node.op_type == "Conv":
        return math.prod((*result, *operand[1:]))
    if node.op_type == "ConvTranspose":
        return math.prod((*left, *operand[1:]))
    return math.prod((*result, left[0] if _attributes(node).get("transA") else left[-1]))


def _einsum(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Return the product of all sizes that letters stand for: one operation for each combination."""
    equation = _attributes(node).get("equation", b"").decode(errors="replace").replace(" ", "")
    sources, arrow, _ = equation.partition("->")
    operands = sources.split(",")
    sizes: dict[str, int] = {}
    if not arrow or len(operands) != len(node.input):
        raise ToolchainError("an Einsum's equation should name each operand and the result.")
    for letters, name in zip(operands, node.input, strict=True):
        if not letters.isalpha() or len(letters) != len(shapes[name]):
            raise ToolchainError("an Einsum's equation should have a letter for each axis.")
        for letter, size in zip(letters, shapes[name], strict=True):
            sizes[letter] = max(sizes.get(letter, 1), size)
    return math.prod(sizes.values())


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
