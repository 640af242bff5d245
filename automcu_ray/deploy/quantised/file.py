"""A file that is quantised already: whether it is one, what of it has no form here, and both of ONNX's forms as one.

ONNX knows two. "Tensor-oriented" (QDQ) files have float operators between QuantizeLinear and DequantizeLinear;
"operator-oriented" (QOperator) files have operators of int8, most of them onnxruntime's own. The second are written as
the first, value for value, so that `reader` reads one form. Source: "ONNX quantization representation
format", onnxruntime.ai/docs/performance/model-optimizations/quantization.html.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.graph_editor import options_of
from automcu_ray.deploy.operator_cost import PAIR

_OPERATORS = {  # of int8, as float operators; and how many operands stand before the scale of the result
    "QLinearConv": ("Conv", 2),
    "QLinearMatMul": ("MatMul", 2),
    "QGemm": ("Gemm", 2),
    "QLinearAdd": ("Add", 2),
    "QLinearMul": ("Mul", 2),
    "QLinearAveragePool": ("AveragePool", 1),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", 1),
    "QLinearSigmoid": ("Sigmoid", 1),
    "QLinearLeakyRelu": ("LeakyRelu", 1),
    "QLinearSoftmax": ("Softmax", 1),
    "QLinearConcat": ("Concat", 0),
}
_DYNAMIC = {"DynamicQuantizeLinear", "ConvInteger", "MatMulInteger", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"}
_CONTRIB = "com.microsoft"
_NARROW = {TensorProto.INT4: "4-bit", TensorProto.UINT4: "4-bit", TensorProto.INT2: "2-bit", TensorProto.UINT2: "2-bit"}
_WIDE = {TensorProto.INT16: "int16", TensorProto.UINT16: "uint16"}
_EIGHT = (TensorProto.INT8, TensorProto.UINT8)
_NUMBERS = ("alpha", "axis", "block_size", "channels_last", "output_dtype", "transA", "transB")


def is_quantised(model: onnx.ModelProto) -> bool:
    """Return whether any of a file's operators quantises, or is quantised."""
    kinds = {node.op_type for node in model.graph.node}
    return bool(kinds & {*PAIR, *_OPERATORS, *_DYNAMIC}) or any(kind.startswith("QLinear") for kind in kinds)


def as_pairs(model: onnx.ModelProto) -> bool:
    """Write the operators of int8 as float operators between pairs, in place; their values stay.

    Integers at the ends get pairs too: an input of int8 is `pixel - 128`, one of uint8 the pixel. Return whether the
    input was of integers.

    Raises:
        ToolchainError: a kind of quantisation that has no int8 form here; it is named.
    """
    graph = model.graph
    _refuse_others(graph)
    made: list[NodeProto] = []
    values = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type in _OPERATORS:
            made += _Pairs(graph, values, node).nodes()
        else:
            if node.op_type in PAIR:
                node.domain = ""
            made.append(node)
    integers = _float_input(graph, made, values)
    _float_output(graph, made)
    copies = [NodeProto.FromString(node.SerializeToString()) for node in made]
    del graph.node[:]
    graph.node.extend(copies)
    kept = [entry for entry in model.opset_import if entry.domain != _CONTRIB]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    del graph.value_info[:]
    return integers


def _refuse_others(graph: onnx.GraphProto) -> None:
    kinds = {node.op_type for node in graph.node}
    if found := sorted(kinds & _DYNAMIC):
        raise ToolchainError(
            f"{found[0]}: it is quantised dynamically, with scales that it works out anew for each image; a "
            "microcontroller needs fixed ones: quantise it statically (quantize_static), or give the float file."
        )
    if found := sorted(kind for kind in kinds if kind.startswith("QLinear") and kind not in _OPERATORS):
        raise ToolchainError(f"quantised operator {found[0]} has no int8 form here; give the float file.")
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    types |= {node.output[0]: a.t.data_type for node in graph.node for a in node.attribute if a.name == "value"}
    for node in graph.node:
        if node.op_type not in PAIR:
            continue
        if len(node.input) < 2:
            raise ToolchainError(f"{node.op_type}: a tensor and its scale are wanted.")
        options = _options(node)
        seen = {types.get(name, 0) for name in (*node.input[:1], *node.input[2:3])} | {options.get("output_dtype", 0)}
        words = [_NARROW[kind] for kind in seen if kind in _NARROW] + [_WIDE[kind] for kind in seen if kind in _WIDE]
        if words:
            raise ToolchainError(f"{words[0]} quantisation has no kernels here: int8 or uint8 is wanted.")
        zero = types.get(node.input[2], 0) if len(node.input) > 2 and node.input[2] else 0
        if zero not in (0, *_EIGHT, TensorProto.INT32):
            name = TensorProto.DataType.Name(zero).lower()
            raise ToolchainError(f"{name} quantisation has no kernels here: int8 or uint8 is wanted.")
        if (scale := types.get(node.input[1], TensorProto.FLOAT)) != TensorProto.FLOAT:
            name = TensorProto.DataType.Name(scale).lower()
            raise ToolchainError(f"its scales are {name}: float32 ones are wanted.")
        if options.get("block_size"):
            raise ToolchainError(
                "its weights have scales by blocks: one a tensor, or one an output channel, is wanted."
            )


def _options(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node; of onnxruntime's own operators onnx checks no types.

    Raises:
        ToolchainError: one that is a number has another type.
    """
    options = options_of(node)
    if odd := [name for name in _NUMBERS if not isinstance(options.get(name, 0), int | float)]:
        raise ToolchainError(f"{node.op_type}: its {odd[0]} is of another type than a number.")
    return options


class _Pairs:
    """One operator of int8, between pairs."""

    def __init__(self, graph: onnx.GraphProto, values: dict[str, TensorProto], node: NodeProto) -> None:
        self.graph, self.values, self.node = graph, values, node
        self.made: list[NodeProto] = []

    def nodes(self) -> list[NodeProto]:
        kind, count = _OPERATORS[self.node.op_type]
        names, options = list(self.node.input), _options(self.node)
        if options.pop("channels_last", 0):
            raise ToolchainError(f"{self.node.op_type}: channels last inside the file have no form here.")
        least = 5 if kind == "Concat" else 6 if kind == "Gemm" else 3 * count + 1
        if len(names) < least or (kind == "Concat" and len(names) % 3 != 2):
            raise ToolchainError(
                f"{self.node.op_type}: at least {least} inputs, with scales, are wanted, found {len(names)}."
            )
        weighted = kind in ("Conv", "Gemm", "MatMul")
        if kind == "Concat":
            (scale, zero), parts = names[:2], [names[at : at + 3] for at in range(2, len(names), 3)]
        else:
            parts = [names[3 * at : 3 * at + 3] for at in range(count)]
            scale, zero = (*(names[7:9] if kind == "Gemm" else names[3 * count : 3 * count + 2]), "", "")[:2]
        axis = 1 if kind == "MatMul" or (kind == "Gemm" and not options.get("transB", 0)) else 0
        read = [self._real(part, axis if weighted and at == 1 else None) for at, part in enumerate(parts)]
        bias = (names[6:7] if kind == "Gemm" else names[8:9] if kind == "Conv" else []) or [""]
        if bias[0]:
            read.append(self._bias(bias[0], names[1], names[4], float(options.get("alpha", 1.0))))
        if kind == "Softmax":
            options = {"axis": options.get("axis", -1)}
        result = f"{self.node.output[0]}_real" if scale else self.node.output[0]
        self.made.append(helper.make_node(kind, read, [result], name=self.node.name, **options))
        if scale:
            self.made.append(helper.make_node("QuantizeLinear", [result, scale, zero], [self.node.output[0]]))
        return self.made

    def _real(self, part: Sequence[str], axis: int | None) -> str:
        result = f"{self.node.output[0]}_operand{len(self.made)}"
        scale = self.values.get(part[1])
        options = {} if axis is None or scale is None or np.prod(scale.dims) == 1 else {"axis": axis}
        self.made.append(helper.make_node("DequantizeLinear", part, [result], **options))
        return result

    def _bias(self, name: str, x_scale: str, w_scale: str, factor: float) -> str:
        """Return a bias of int32 as a float tensor: its unit is that of the products."""
        if not {x_scale, w_scale, name} <= self.values.keys():
            raise ToolchainError(f"{self.node.op_type}: scales and bias should be constants.")
        x, w = (numpy_helper.to_array(self.values[one]).astype(np.float32).reshape(-1) for one in (x_scale, w_scale))
        count = int(np.prod(self.values[name].dims))
        if x.size != 1 or w.size not in (1, count):
            raise ToolchainError(f"{self.node.op_type}: a scale for all, or one for each of {count} biases, is wanted.")
        scales = np.float32(factor) * np.broadcast_to(x * w, count) if count else np.zeros(0, np.float32)
        held = f"{self.node.output[0]}_bias_scale"
        self.graph.initializer.append(numpy_helper.from_array(scales.astype(np.float32), held))
        result = f"{self.node.output[0]}_bias"
        self.made.append(helper.make_node("DequantizeLinear", [name, held], [result], axis=0))
        return result


def _float_input(graph: onnx.GraphProto, made: list[NodeProto], values: dict[str, TensorProto]) -> bool:
    """Let an input of integers be one of our pixels, `(pixel - 128) / 128`; return whether there is one."""
    entry = next((value for value in graph.input if value.name not in values), None)
    if entry is None or (kind := entry.type.tensor_type.elem_type) not in _EIGHT:
        return False
    name, zero = entry.name, np.int8(0) if kind == TensorProto.INT8 else np.uint8(128)
    constants = {f"{name}_unit": np.array(1 / 128, np.float32), f"{name}_zero": np.array(zero)}
    graph.initializer.extend(numpy_helper.from_array(value, called) for called, value in constants.items())
    for node in made:
        node.input[:] = [f"{name}_integers" if one == name else one for one in node.input]
    made.insert(0, helper.make_node("QuantizeLinear", [name, *constants], [f"{name}_integers"]))
    entry.type.tensor_type.elem_type = TensorProto.FLOAT
    return True


def _float_output(graph: onnx.GraphProto, made: list[NodeProto]) -> None:
    """Let an output of integers be what they stand for, by the scale that the last operator gives them."""
    if len(graph.output) != 1 or graph.output[0].type.tensor_type.elem_type not in _EIGHT:
        return
    name = graph.output[0].name
    makers = {one: node for node in made for one in node.output}
    at, seen = makers.get(name), set[str]()
    while at is not None and at.op_type != "QuantizeLinear" and at.input and at.output[0] not in seen:
        seen.add(at.output[0])
        at = makers.get(at.input[0])
    if at is None or at.op_type != "QuantizeLinear":
        raise ToolchainError("its output is of integers whose scale the file does not say.")
    for node in made:
        node.input[:] = [f"{name}_integers" if one == name else one for one in node.input]
        node.output[:] = [f"{name}_integers" if one == name else one for one in node.output]
    made.append(helper.make_node("DequantizeLinear", [f"{name}_integers", *at.input[1:]], [name]))
    graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT


def drop_quantised_softmax(graph: onnx.GraphProto) -> str:
    """Take a softmax between pairs off the end, in place; return its kind, or "" where there is none."""
    output = graph.output[0].name
    makers = {name: node for node in graph.node for name in node.output}
    at = [makers.get(output)]
    while (node := at[-1]) is not None and node.op_type in PAIR and node.input:
        at.append(makers.get(node.input[0]))
    last = at[-1]
    if last is None or last.op_type not in ("Softmax", "LogSoftmax") or len(at) < 2 or not last.input:
        return ""
    kind, source = last.op_type, last.input[0]
    for node in at:
        if node is not None:
            graph.node.remove(node)
    for node in graph.node:
        node.input[:] = [output if name == source else name for name in node.input]
        node.output[:] = [output if name == source else name for name in node.output]
    return str(kind)
