"""ONNX from a process nobody trusts: what is refused, what is counted, and what counts as the same structure."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy import untrusted_onnx
from automcu_ray.deploy.tracing import trace
from automcu_ray.deploy.untrusted_onnx import check_foreign, network_hash
from tests.backends.operator_networks import Attention, Tail, Tokens

SHAPE, CLASSES = (1, 8, 8), 10
Edit = Callable[[onnx.ModelProto], object]


def network(width: int = 4, *, norm: bool = False, bias: bool = True) -> nn.Module:
    """8x8 -> conv 3x3 (6x6) -> linear 10: 40 + 1450 parameters and 36*9*4 + 1440 products at width 4."""
    torch.manual_seed(0)
    conv = [nn.Conv2d(1, width, 3, bias=bias), *([nn.BatchNorm2d(width)] if norm else []), nn.ReLU()]
    return nn.Sequential(*conv, nn.Flatten(), nn.Linear(36 * width, CLASSES))


@pytest.fixture(scope="module")
def sound() -> bytes:
    return trace(network(), SHAPE)


def edited(model: bytes, edit: Edit) -> bytes:
    loaded = onnx.load_from_string(model)
    edit(loaded)
    return bytes(loaded.SerializeToString())


def test_parameters_and_products_are_counted_from_the_graph(sound: bytes) -> None:
    found = check_foreign(sound, SHAPE, CLASSES)
    assert (found.parameters, found.macs) == (1490, 36 * 9 * 4 + 1440)


def external(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "/etc/passwd")


def subgraph(model: onnx.ModelProto) -> None:
    node = model.graph.node[0]
    node.attribute.append(helper.make_attribute("body", helper.make_graph([], "g", [], [])))


def open_size(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"


def huge(model: onnx.ModelProto) -> None:
    size = numpy_helper.from_array(np.array([2, 1 << 20, 1 << 10]), "size")
    model.graph.initializer.append(size)
    zero = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.0])
    model.graph.node.append(helper.make_node("ConstantOfShape", ["size"], ["huge"], value=zero))


def text(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(helper.make_tensor("t", TensorProto.STRING, [1], [b"x"]))


def truncated(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].raw_data = b"\0\0\0\0"


def two_faced(model: onnx.ModelProto) -> None:
    node = helper.make_node("Constant", [], ["shape"], value_ints=[1 << 14, 2, 10])
    node.attribute[0].t.CopyFrom(numpy_helper.from_array(np.array([2, 10])))
    model.graph.node.append(node)


def elsewhere(model: onnx.ModelProto) -> None:
    size = numpy_helper.from_array(np.array([2]), "size")
    model.graph.initializer.append(size)
    zero = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.0])
    zero.external_data.add(key="location", value="/etc/passwd")
    model.graph.node.append(helper.make_node("ConstantOfShape", ["size"], ["filled"], value=zero))


def claimed(model: onnx.ModelProto) -> None:
    """A size that comes from the pixels, under a claim that it is small."""
    model.graph.node.append(helper.make_node("ReduceSum", ["image"], ["sum"], keepdims=0))
    model.graph.node.append(helper.make_node("Cast", ["sum"], ["count"], to=TensorProto.INT64))
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "one"))
    model.graph.node.append(helper.make_node("Reshape", ["count", "one"], ["size"]))
    model.graph.node.append(helper.make_node("Expand", ["one", "size"], ["large"]))
    model.graph.value_info.append(helper.make_tensor_value_info("large", TensorProto.INT64, (2,)))


def to_no_type(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Cast", ["image"], ["cast"], to=0))


def wide(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Sum", ["image"] * 65, ["sum"]))


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (external, "should lie in the file itself"),
        (subgraph, "no plain value"),
        (open_size, "should take and give"),
        (huge, "too large"),
        (text, "floats, integers or truth"),
        (two_faced, "hold one tensor"),
        (elsewhere, "should lie in the file itself"),
        (claimed, "not known before it runs"),
        (wide, "more than 64 inputs"),
        (to_no_type, "types contradict each other"),
        (truncated, "do not fill its shape"),
        (lambda m: setattr(m.graph.node[0], "op_type", "Loop"), "Loop is not among the known"),
        (lambda m: setattr(m.graph.node[0], "domain", "com.microsoft"), "com.microsoft.Conv is not among"),
        (lambda m: setattr(m.graph.node[0], "op_type", "Relu"), "contradict|should"),
        (lambda m: m.functions.add(), "functions"),
        (lambda m: m.graph.output.append(m.graph.output[0]), "should take and give"),
        (lambda m: m.graph.ClearField("node"), "found 0"),
        (lambda m: setattr(m.opset_import[0], "version", 99), "operator set 17"),
    ],
)
def test_what_may_not_be_loaded_is_refused_with_a_reason(sound: bytes, edit: Edit, why: str) -> None:
    with pytest.raises(ToolchainError, match=why):
        check_foreign(edited(sound, edit), SHAPE, CLASSES)


def test_rubbish_and_oversized_files_are_refused(monkeypatch: pytest.MonkeyPatch, sound: bytes) -> None:
    for rubbish in (b"rubbish", b"", sound[:100]):
        with pytest.raises(ToolchainError):
            check_foreign(rubbish, SHAPE, CLASSES)
    monkeypatch.setattr(untrusted_onnx, "MAX_BYTES", len(sound) - 1)
    with pytest.raises(ToolchainError, match="over"):
        check_foreign(sound, SHAPE, CLASSES)


def test_another_task_s_shapes_are_refused(sound: bytes) -> None:
    for shape, classes in (((3, 8, 8), 10), ((1, 8, 8), 9)):
        with pytest.raises(ToolchainError, match="should take and give"):
            check_foreign(sound, shape, classes)


def test_too_much_work_is_refused(monkeypatch: pytest.MonkeyPatch, sound: bytes) -> None:
    monkeypatch.setattr(untrusted_onnx, "MAX_OPERATIONS", 1000)
    with pytest.raises(ToolchainError, match="3312 operations"):
        check_foreign(sound, SHAPE, CLASSES)


class Renamed(nn.Module):
    """The network above under other names, in another order, with other weights."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first = nn.Linear(144, 10), nn.Conv2d(1, 4, (3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)).flatten(1))


class Tied(nn.Module):
    """Two convolutions, or one used twice."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.one = nn.Conv2d(1, 1, 3, padding=1)
        self.two = self.one if tied else nn.Conv2d(1, 1, 3, padding=1)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.two(self.one(x)).flatten(1))


def of(made: nn.Module) -> str:
    return network_hash(trace(made, SHAPE, training=True))


def test_equal_networks_written_otherwise_have_equal_hashes() -> None:
    assert of(Renamed()) == of(network()) and len(of(network())) == 12


def test_what_trains_otherwise_has_another_hash() -> None:
    others = [
        network(5),
        network(norm=True),
        network(bias=False),
        nn.Sequential(nn.Dropout(0.5), *network().children()),
        nn.Sequential(nn.Dropout(0.1), *network().children()),
        Tied(True),
        Tied(False),
    ]
    assert len({of(network()), *(of(other) for other in others)}) == 8


def test_equal_weights_do_not_make_another_structure() -> None:
    """The exporter writes equal ones once; training makes them differ."""
    equal = Tied(False)
    equal.two.load_state_dict(equal.one.state_dict())
    assert "Identity" in {node.op_type for node in onnx.load_from_string(trace(equal, SHAPE)).graph.node}
    assert of(equal) == of(Tied(False)) != of(Tied(True))
    assert check_foreign(trace(equal, SHAPE), SHAPE, CLASSES) == check_foreign(
        trace(Tied(False), SHAPE), SHAPE, CLASSES
    )


def test_a_training_graph_meets_the_checks_too(sound: bytes) -> None:
    for edit in (external, subgraph, two_faced, wide):
        with pytest.raises(ToolchainError, match="refused"):
            network_hash(edited(sound, edit))


def test_a_hash_looks_at_each_value_once(sound: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    about = untrusted_onnx._about
    monkeypatch.setattr(untrusted_onnx, "_about", lambda name, *rest: (looked_at.append(name), about(name, *rest))[1])

    def tangled(model: onnx.ModelProto) -> None:
        names = [f"n{i}" for i in range(4000)]
        made = [helper.make_node("Sum", [names[max(i - j, 0)] for j in range(1, 64)], [names[i]]) for i in range(4000)]
        model.graph.node.extend(made)
        model.graph.output[0].name = names[-1]

    network_hash(edited(sound, tangled))
    assert len(looked_at) == len(set(looked_at)) == 4000


def test_a_graph_that_turns_in_a_circle_has_a_hash_all_the_same(sound: bytes) -> None:
    def circle(model: onnx.ModelProto) -> None:
        model.graph.node[0].input[0] = model.graph.node[-1].output[0]

    assert len(network_hash(edited(sound, circle))) == 12


def test_rubbish_has_no_hash() -> None:
    with pytest.raises(ToolchainError, match="no ONNX file"):
        network_hash(b"rubbish")


def test_attention_whose_sizes_are_worked_out_by_operators_is_counted() -> None:
    """Convolution 16*27*8; queries, keys, values 16*8*24; two products of 2 heads 16*16*4; linear 16*8*8 and 128*5."""
    found = check_foreign(trace(Tail(Tokens(Attention(True)), 128), (3, 12, 12)), (3, 12, 12), 5)
    assert found.macs == 3456 + 3072 + 2 * 2048 + 1024 + 640


@pytest.mark.parametrize(
    ("kind", "values"), [("ConstantOfShape", [1 << 40]), ("ConstantOfShape", [-1]), ("Mod", [0]), ("Reshape", [3, 5])]
)
def test_a_size_that_nobody_can_work_out_stays_unknown(sound: bytes, kind: str, values: list[int]) -> None:
    def worked_out(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(numpy_helper.from_array(np.array(values), "given"))
        model.graph.node.append(helper.make_node(kind, ["given"] * (1 if kind == "ConstantOfShape" else 2), ["size"]))
        model.graph.node.append(helper.make_node("Expand", ["logits", "size"], ["larger"]))

    with pytest.raises(ToolchainError, match="is refused"):
        check_foreign(edited(sound, worked_out), SHAPE, CLASSES)
