"""Recurrent operators of other frameworks: one form that gives the same, and what has no int8 form is named."""

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.recurrent_cell import Cell
from automcu_ray.deploy.recurrent_layers import check, use_one_form

STEPS, IMAGES, INPUTS, HIDDEN = 5, 3, 4, 2
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
RNG = np.random.default_rng(0)


def model(kind: str, read: str = "Y", *, extra: dict[str, Any] | None = None, **attributes: Any) -> onnx.ModelProto:
    """A recurrent operator; `read` says which of its results are the model's, `extra` are inputs by name."""
    ways, rows = 1 + (attributes.get("direction") == "bidirectional"), GATES[kind] * HIDDEN
    shapes = {"W": (ways, rows, INPUTS), "R": (ways, rows, HIDDEN), "B": (ways, 2 * rows)}
    constants = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} | (extra or {})
    places = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
    names = [name if name in constants or name == "X" else "" for name in places[: 6 if kind != "LSTM" else 8]]
    results = ["Y", "Y_h", "Y_c"] if kind == "LSTM" else ["Y", "Y_h"]
    node = helper.make_node(kind, names, results, name="layer", hidden_size=HIDDEN, **attributes)
    nodes = [node]
    outputs = []
    for name in read.split():
        nodes.append(helper.make_node("Mul", [name, "two"], [f"{name}_read"], name=f"{name}_read"))
        outputs.append(onnx.ValueInfoProto(name=f"{name}_read"))
    tensors = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    tensors.append(numpy_helper.from_array(np.float32(2), "two"))
    data = helper.make_tensor_value_info("X", TensorProto.FLOAT, [STEPS, "batch", INPUTS])
    graph = helper.make_graph(nodes, "recurrent", [data], outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def answers(made: onnx.ModelProto) -> list[Any]:
    data = np.random.default_rng(1).normal(size=(STEPS, IMAGES, INPUTS)).astype(np.float32)
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, {"X": data})
    return found


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("read", ["Y", "Y_h", "Y Y_h"])
@pytest.mark.parametrize("kind", GATES)
def test_one_form_gives_the_same(kind: str, read: str, direction: str) -> None:
    start = np.full((1 + (direction == "bidirectional"), IMAGES, HIDDEN), 0.5, np.float32)
    made = model(kind, read, extra={"initial_h": start}, direction=direction)
    wanted = answers(made)
    check(made)
    use_one_form(made)
    layers = [node for node in made.graph.node if node.op_type == kind]
    assert len(layers) == len(start) and all(sum(map(bool, node.output)) == 1 for node in layers)
    for found, one in zip(answers(made), wanted, strict=True):
        assert np.abs(found - one).max() < 1e-6


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("kind", GATES)
def test_a_cell_in_numpy_knows_how_large_values_become(kind: str, after: int) -> None:
    made = model(kind, **({"linear_before_reset": after} if kind == "GRU" else {}))
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    cell = Cell.of(made.graph.node[0], constants)
    data = np.random.default_rng(1).normal(size=(STEPS, IMAGES, INPUTS)).astype(np.float32)
    if kind == "RNN":
        assert cell.largest(data) == pytest.approx(float(answers(made)[0].max() / 2), rel=1e-5)
    elif kind == "LSTM":
        ends = [cell.largest(data[:steps]) for steps in range(1, STEPS + 1)]
        assert ends == sorted(ends) and 0 < ends[0] <= 1 and ends[-1] <= STEPS
    else:
        sums = data @ constants["W"][0, 2 * HIDDEN :].T + constants["B"][0, 2 * HIDDEN : 3 * HIDDEN]
        assert cell.largest(data) >= np.abs(sums).max() - 1e-6


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "peepholes": ("LSTM", {"extra": {"P": np.zeros((1, 3 * HIDDEN), np.float32)}}, "has peepholes"),
    "lengths": ("GRU", {"extra": {"sequence_lens": np.array([5, 4, 5], np.int32)}}, "sequences of different lengths"),
    "starts": (
        "RNN",
        {"extra": {"initial_h": np.arange(IMAGES * HIDDEN, dtype=np.float32).reshape(1, IMAGES, HIDDEN)}},
        "another for each image",
    ),
    "far start": ("GRU", {"extra": {"initial_h": np.full((1, IMAGES, HIDDEN), 2, np.float32)}}, "beyond -1 to 1"),
    "cell": ("LSTM", {"read": "Y_c"}, "gives its cell state away"),
    "clip": ("LSTM", {"clip": 1.0}, "option clip"),
    "activations": ("GRU", {"activations": ["HardSigmoid", "Tanh"]}, "activations HardSigmoid, Tanh, not Sigmoid"),
    "layout": ("GRU", {"layout": 1}, "images before its steps"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_int8_form_is_named(name: str) -> None:
    kind, options, why = REFUSED[name]
    with pytest.raises(ToolchainError, match=rf"layer: int8 {kind} .*{why}"):
        check(model(kind, **options))
