"""int8 operators that onnxruntime lacks, as ONNX functions of its integer operators: softmax, ratio, maximum, minimum.

onnxruntime has no int8 division or maximum of two tensors, and its QLinearSoftmax adds floats. So each of these is a
function of the model's own, whose body is exact on every processor; the C has one kernel for each. Exponentials,
quotients and changes of scale are tables of 256 entries.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from automcu_ray.core.errors import ToolchainError

DOMAIN, OPSET = "automcu", 17
KINDS = {"Softmax": "Int8Softmax", "Div": "Int8Ratio", "Max": "Int8Largest", "Min": "Int8Smallest"}
MAX_SOFTMAX = 4096  # values: the sum of as many exponentials keeps 18 bits of each
WHOLE_BITS = 20  # a softmax's divisor is a multiple of 2^20, so that the C keeps it in 32 bits
QUOTIENT_BITS = 13  # behind the point of a quotient: 0.02 of a step of the result at most is lost
_LIMIT = 257 << QUOTIENT_BITS  # a quotient beyond it gives the largest result with any dividend but zero
_FAR = 1 << 29  # above every product: integer division then rounds down, whatever the sign
_EVERY = np.arange(-128, 128)

Array = npt.NDArray[Any]


class Scale(NamedTuple):
    """A real value is `(q - zero) * step`."""

    step: float
    zero: int


def is_function(node: NodeProto, constants: Mapping[str, Any]) -> bool:
    """Return whether a node of a float graph has an integer function: two tensors of a kind, or a softmax."""
    computed = not any(name in constants for name in node.input)
    return node.op_type in KINDS and computed and len(node.input) == (1 if node.op_type == "Softmax" else 2)


def write(
    model: onnx.ModelProto, node: NodeProto, sources: Sequence[str], reads: Sequence[Scale], result: str, gives: Scale
) -> NodeProto:
    """Return the call of a float node's function; tables and the function itself are added to the model.

    Args:
        model: the quantised model.
        node: the float node.
        sources: int8 tensors that it is to read.
        reads: their scales.
        result: the int8 tensor that it is to give.
        gives: its scale.

    Raises:
        ToolchainError: a softmax over too many values, or over no axis of an image.
    """
    kind = KINDS[node.op_type]
    tables = _TABLES[node.op_type](reads, gives)
    names = [f"{result}_function{number}" for number in range(len(tables))]
    model.graph.initializer.extend(
        numpy_helper.from_array(table, name) for table, name in zip(tables, names, strict=True)
    )
    if kind not in {function.name for function in model.functions}:
        model.functions.append(_BODIES[node.op_type]())
    if DOMAIN not in {entry.domain for entry in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    axes = {"axes": [helper.get_node_attr_value(node, "axis")]} if node.op_type == "Softmax" else {}
    return helper.make_node(kind, [*sources, *names], [result], name=node.name, domain=DOMAIN, **axes)


def _softmax_tables(reads: Sequence[Scale], gives: Scale) -> list[Array]:
    """Return exponentials by the distance from the largest value, what the result's steps make of 1, its zero point.

    The exponentials have as many bits as the sum of MAX_SOFTMAX allows; the C's own softmax counts on that.
    """
    exponentials = np.rint(np.exp(-np.arange(256) * reads[0].step) * (1 << 18)).astype(np.int64)
    whole = round((1 << 32 - WHOLE_BITS) / gives.step) << WHOLE_BITS
    return [exponentials, np.array(whole, np.int64), np.array(gives.zero, np.int64)]


def _ratio_tables(reads: Sequence[Scale], gives: Scale) -> list[Array]:
    """Return the dividend's zero point, what a step of it makes by each divisor, the result's zero point."""
    apart = (_EVERY - reads[1].zero).astype(np.float64)
    with np.errstate(divide="ignore"):
        factors = reads[0].step / (reads[1].step * gives.step) * (1 << QUOTIENT_BITS) / apart
    factors = np.rint(factors.clip(-_LIMIT, _LIMIT)).astype(np.int32)
    return [np.array(reads[0].zero, np.int32), _by_index(factors), np.array(gives.zero, np.int32)]


def _pair_tables(reads: Sequence[Scale], gives: Scale) -> list[Array]:
    """Return both tensors' values at the scale of the result."""
    made = [np.rint((_EVERY - read.zero) * (read.step / gives.step)) + gives.zero for read in reads]
    return [_by_index(values.clip(-128, 127).astype(np.int8)) for values in made]


def _by_index(table: Array) -> Array:
    """Return a table, -128 first, as Gather reads it: an index below zero counts from the end."""
    return np.roll(table, 128)


_TABLES: dict[str, Callable[[Sequence[Scale], Scale], list[Array]]] = {
    "Softmax": _softmax_tables,
    "Div": _ratio_tables,
    "Max": _pair_tables,
    "Min": _pair_tables,
}


class _Body:
    """The nodes of a function, one after the other."""

    def __init__(self, name: str, *inputs: str, axes: bool = False) -> None:
        self.name, self.inputs, self.axes, self.nodes = name, inputs, axes, list[NodeProto]()

    def then(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def over_axes(self, kind: str, *inputs: str, attribute: str = "axes", **attributes: Any) -> str:
        name = self.then(kind, *inputs, **attributes)
        referred = AttributeProto(name=attribute, ref_attr_name="axes", type=AttributeProto.INTS)
        self.nodes[-1].attribute.append(referred)
        return name

    def constant(self, value: int, kind: type[np.signedinteger[Any]]) -> str:
        return self.then("Constant", value=numpy_helper.from_array(np.array(value, kind)))

    def int8(self, value: str, kind: type[np.signedinteger[Any]]) -> str:
        low, high = self.constant(-128, kind), self.constant(127, kind)
        return self.then("Cast", self.then("Max", self.then("Min", value, high), low), to=TensorProto.INT8)

    def done(self, result: str) -> onnx.FunctionProto:
        self.nodes[-1].output[0] = "y"
        assert result == f"t{len(self.nodes) - 1}", "the last node gives the result"
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_function(
            DOMAIN, self.name, self.inputs, ["y"], self.nodes, opsets, ["axes"] if self.axes else []
        )


def _softmax() -> onnx.FunctionProto:
    body = _Body(KINDS["Softmax"], "x", "exponentials", "whole", "zero", axes=True)
    largest = body.then("Cast", body.over_axes("ReduceMax", "x", keepdims=1), to=TensorProto.INT32)
    below = body.then("Sub", largest, body.then("Cast", "x", to=TensorProto.INT32))
    parts = body.then("Gather", "exponentials", below, axis=0)
    total = body.then("ReduceSum", parts, body.over_axes("Constant", attribute="value_ints"), keepdims=1)
    shares = body.then("Mul", parts, body.then("Div", "whole", total))
    half, one = body.constant(1 << 31, np.int64), body.constant(1 << 32, np.int64)
    rounded = body.then("Div", body.then("Add", shares, half), one)
    return body.done(body.int8(body.then("Add", rounded, "zero"), np.int64))


def _ratio() -> onnx.FunctionProto:
    body = _Body(KINDS["Div"], "a", "b", "zero_a", "factors", "zero")
    dividend = body.then("Sub", body.then("Cast", "a", to=TensorProto.INT32), "zero_a")
    factor = body.then("Gather", "factors", body.then("Cast", "b", to=TensorProto.INT32), axis=0)
    one, half = 1 << QUOTIENT_BITS, 1 << QUOTIENT_BITS - 1
    above = body.then("Add", body.then("Mul", dividend, factor), body.constant(_FAR + half, np.int32))
    floor = body.then("Div", above, body.constant(one, np.int32))
    back = body.then("Sub", floor, body.constant(_FAR // one, np.int32))
    return body.done(body.int8(body.then("Add", back, "zero"), np.int32))


def _extreme(kind: str) -> onnx.FunctionProto:
    body = _Body(KINDS[kind], "a", "b", "table_a", "table_b")
    looked_up = []
    for name in "ab":
        index = body.then("Cast", name, to=TensorProto.INT32)
        looked_up.append(body.then("Cast", body.then("Gather", f"table_{name}", index, axis=0), to=TensorProto.INT32))
    return body.done(body.then("Cast", body.then(kind, *looked_up), to=TensorProto.INT8))


_BODIES: dict[str, Callable[[], onnx.FunctionProto]] = {
    "Softmax": _softmax,
    "Div": _ratio,
    "Max": lambda: _extreme("Max"),
    "Min": lambda: _extreme("Min"),
}


def check_size(node: NodeProto, shape: Sequence[int]) -> None:
    """Return if a softmax is over an axis of an image, of at most MAX_SOFTMAX values.

    Raises:
        ToolchainError: it is not.
    """
    axis = helper.get_node_attr_value(node, "axis") % len(shape)
    if axis == 0 or not 0 < shape[axis] <= MAX_SOFTMAX:
        raise ToolchainError(
            f"int8 Softmax ({node.name}) should be over at most {MAX_SOFTMAX} values of an image; found axis {axis} of "
            f"{list(shape)}."
        )
