"""Sound ONNX files, damaged where it hurts: what feeds what, sizes, types, operators, places of weights."""

from collections.abc import Sequence

import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.fuzz.damaged import texts

_KINDS = (
    *("Conv", "Gemm", "MatMul", "Add", "Mul", "Concat", "MaxPool", "AveragePool", "Reshape", "Transpose", "Softmax"),
    *(
        "QuantizeLinear",
        "DequantizeLinear",
        "QLinearConv",
        "DynamicQuantizeLinear",
        "Loop",
        "If",
        "LSTM",
        "Pad",
        "Slice",
    ),
    *("NoSuchOperator", "", "x" * 500, "\x1b[31m", "Resize", "Einsum", "GlobalAveragePool", "Clip", "Split", "Gather"),
)
_SIZES = (0, -1, 1, 2, 3, 7, 8, 64, 1 << 20, 2**31, 2**62, -(2**63))
_TYPES = tuple(range(28))


@st.composite
def graphs(draw: st.DrawFn, sound: Sequence[bytes]) -> bytes:
    """A sound file with one to four changes to its graph; some of them damaged as bytes, too."""
    model = onnx.load_from_string(draw(st.sampled_from(sound)))
    for _ in range(draw(st.integers(1, 4))):
        draw(st.sampled_from(_CHANGES))(draw, model)
    data = model.SerializeToString()
    return data if draw(st.integers(0, 9)) else draw(texts([data]))


def _names(model: onnx.ModelProto) -> list[str]:
    graph = model.graph
    return [
        *(value.name for value in (*graph.input, *graph.output)),
        *(tensor.name for tensor in graph.initializer),
        *(name for node in graph.node for name in node.output),
        *("", "nobody"),
    ]


def _rewire(draw: st.DrawFn, model: onnx.ModelProto) -> None:
    """Feed a node anything, what comes after it too: circles."""
    node = draw(st.sampled_from(model.graph.node)) if model.graph.node else onnx.NodeProto()
    if node.input:
        node.input[draw(st.integers(0, len(node.input) - 1))] = draw(st.sampled_from(_names(model)))
    if draw(st.integers(0, 3)) == 0:
        node.input.append(draw(st.sampled_from(_names(model))))


def _rename(draw: st.DrawFn, model: onnx.ModelProto) -> None:
    node = draw(st.sampled_from(model.graph.node)) if model.graph.node else onnx.NodeProto()
    if node.output:
        node.output[0] = draw(st.sampled_from(_names(model)))


def _operator(draw: st.DrawFn, model: onnx.ModelProto) -> None:
    if model.graph.node:
        node = draw(st.sampled_from(model.graph.node))
        node.op_type = draw(st.sampled_from(_KINDS))
        node.domain = draw(st.sampled_from(["", "", "com.microsoft", "my.domain", "ai.onnx.ml"]))


def _attribute(draw: st.DrawFn, model: onnx.ModelProto) -> None:
    if not model.graph.node:
        return
    node = draw(st.sampled_from(model.graph.node))
    names = [
        "pads",
        "strides",
        "kernel_shape",
        "axis",
        "group",
        "transB",
        "alpha",
        "perm",
        "dilations",
        "block_size",
        "axes",
    ]
    value = draw(st.sampled_from([*_SIZES, 0.5, float("nan"), "NOTSET", [0], [1, 1], [2**40] * 4, [-1, 3, 0, 2]]))
    node.attribute.append(helper.make_attribute(draw(st.sampled_from(names)), value))
    if draw(st.booleans()):
        del node.attribute[:-1]


def _tensor(draw: st.DrawFn, model: onnx.ModelProto) -> None:
    """Other sizes, another type, other bytes, or weights in another file."""
    if not model.graph.initializer:
        return
    tensor = draw(st.sampled_from(model.graph.initializer))
    how = draw(st.integers(0, 4))
    if how == 0:
        tensor.dims[:] = draw(st.lists(st.sampled_from(_SIZES), max_size=5))
    elif how == 1:
        tensor.data_type = draw(st.sampled_from(_TYPES))
    elif how == 2:
        tensor.raw_data = draw(st.binary(max_size=len(tensor.raw_data) + 4))
    elif how == 3:
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="/etc/passwd")
    else:
        tensor.name = draw(st.sampled_from(_names(model)))


def _ends(draw: st.DrawFn, model: onnx.ModelProto) -> None:
    value = draw(st.sampled_from([*model.graph.input, *model.graph.output] or [onnx.ValueInfoProto()]))
    kind = value.type.tensor_type
    if draw(st.booleans()):
        kind.elem_type = draw(st.sampled_from(_TYPES))
    else:
        dim = kind.shape.dim.add() if draw(st.booleans()) or not kind.shape.dim else kind.shape.dim[0]
        dim.dim_value = draw(st.sampled_from(_SIZES))


def _nodes(draw: st.DrawFn, model: onnx.ModelProto) -> None:
    """A node less, a node twice, nodes in another order, none at all."""
    nodes = list(model.graph.node)
    if not nodes:
        return
    at = draw(st.integers(0, len(nodes) - 1))
    others = [*nodes[:at], *nodes[at + 1 :]]
    kept = draw(st.sampled_from([others, [*nodes, nodes[at]], nodes[::-1], []]))
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _container(draw: st.DrawFn, model: onnx.ModelProto) -> None:
    """Another operator set, functions within functions, a graph within an operator."""
    how = draw(st.integers(0, 2))
    if how == 0:
        del model.opset_import[draw(st.integers(0, 1)) :]
        version = draw(st.sampled_from([0, 1, 7, 11, 13, 18, 21, 99, -1]))
        model.opset_import.append(helper.make_opsetid(draw(st.sampled_from(["", "com.microsoft"])), version))
    elif how == 1:
        inner = helper.make_node("Twice", ["a"], ["b"], domain="my.domain")
        model.functions.append(
            helper.make_function("my.domain", "Twice", ["a"], ["b"], [inner], [helper.make_opsetid("", 17)])
        )
        model.graph.node.append(helper.make_node("Twice", ["x"], ["twice"], domain="my.domain"))
    elif model.graph.node:
        model.graph.node[0].attribute.append(helper.make_attribute("body", onnx.GraphProto(name="inner")))


_CHANGES = (_rewire, _rewire, _rename, _operator, _attribute, _attribute, _tensor, _tensor, _ends, _nodes, _container)
