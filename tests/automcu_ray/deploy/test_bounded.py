"""Foreign graphs that would end or stall the process that runs them: refused by cost, or ended in a process apart."""

import os
import signal

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy import bounded, foreign
from automcu_ray.deploy.export import deploy_traced
from automcu_ray.deploy.tracing import trace
from automcu_ray.deploy.untrusted_onnx import check_foreign

pytestmark = pytest.mark.thorough

SHAPE, CLASSES = (1, 8, 8), 10
NOISE = np.random.default_rng(0).integers(0, 256, (8, *SHAPE), dtype=np.uint8)
SMALLEST = np.iinfo(np.int64).min


def graph(nodes: list[onnx.NodeProto], **constants: np.ndarray) -> bytes:
    """Return a model whose logits are a product with the image, and which computes `nodes` beside it."""
    weights = np.zeros((64, CLASSES), np.float32)
    ends = [
        helper.make_tensor_value_info("image", TensorProto.FLOAT, (2, *SHAPE)),
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, (2, CLASSES)),
    ]
    linear = [helper.make_node("Flatten", ["image"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["logits"])]
    tensors = [numpy_helper.from_array(value, name) for name, value in {**constants, "w": weights}.items()]
    made = helper.make_graph([*linear, *nodes], "g", ends[:1], ends[1:], tensors)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def dividing() -> bytes:
    """A quotient beyond int64, of numbers that come out of the image, so that nobody can work it out before."""
    node, cast = helper.make_node, {"to": TensorProto.INT64}
    nodes = [
        node("Sub", ["flat", "flat"], ["zero"]),
        node("Cast", ["zero"], ["whole"], **cast),
        node("Add", ["whole", "smallest"], ["least"]),
        node("Add", ["whole", "minus"], ["ones"]),
        node("Div", ["least", "ones"], ["overflow"]),
        node("Cast", ["overflow"], ["back"], to=TensorProto.FLOAT),
        node("MatMul", ["back", "w"], ["more"]),
        node("Add", ["product", "more"], ["logits"]),
    ]
    model = onnx.load_from_string(graph(nodes, smallest=np.array([SMALLEST]), minus=np.array([-1])))
    model.graph.node[1].output[0] = "product"
    return bytes(model.SerializeToString())


@pytest.fixture
def sound() -> bytes:
    torch.manual_seed(0)
    return trace(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES)).eval(), SHAPE)


def test_a_foreign_network_is_the_network_that_it_is(sound: bytes) -> None:
    ours = deploy_traced(sound, SHAPE, precision="int8", calibration=NOISE)
    theirs = foreign.deploy(sound, SHAPE, precision="int8", calibration=NOISE)
    assert foreign.check(sound, SHAPE, CLASSES) == check_foreign(sound, SHAPE, CLASSES)
    assert theirs.foreign and (theirs.onnx, theirs.float_onnx, theirs.labels) == (
        ours.onnx,
        ours.float_onnx,
        ours.labels,
    )
    assert np.array_equal(theirs.run(NOISE), ours.run(NOISE))
    assert theirs.run(NOISE[:0]).shape == (0, CLASSES)
    assert np.array_equal(theirs.as_float.run(NOISE), ours.as_float.run(NOISE))
    assert theirs.with_batch_one() == ours.with_batch_one()


def test_an_overflow_ends_its_own_process_and_the_next_job_finds_a_server(sound: bytes) -> None:
    with pytest.raises(ToolchainError, match="SIGFPE"):
        foreign.deploy(dividing(), SHAPE, precision="float32", calibration=NOISE)
    assert foreign.check(sound, SHAPE, CLASSES).parameters == 40 + 1450


@pytest.mark.parametrize(
    ("node", "constants"),
    [
        (helper.make_node("Einsum", ["a", "b"], ["c"], equation="ab,cd->abcd"), {"a": (2048, 64), "b": (64, 2048)}),
        (helper.make_node("Einsum", ["a", "b"], ["c"], equation="abc,dbe->ad"), {"a": (64, 99, 99), "b": (64, 99, 99)}),
        (helper.make_node("Einsum", ["a", "b"], ["c"], equation="...a,...a->..."), {"a": (9, 9), "b": (9, 9)}),
        (
            helper.make_node("MaxPool", ["a"], ["c"], kernel_shape=[511, 511], pads=[255] * 4),
            {"a": (1, 1, 1024, 1024)},
        ),
        (helper.make_node("LRN", ["a"], ["c"], size=1 << 30), {"a": (1, 1, 9, 9)}),
        (
            helper.make_node("AveragePool", ["a"], ["c"], kernel_shape=[999, 999], pads=[499] * 4),
            {"a": (1, 1, 512, 512)},
        ),
    ],
)
def test_every_operator_costs_something(node: onnx.NodeProto, constants: dict[str, tuple[int, ...]]) -> None:
    arrays = {name: np.zeros(shape, np.float32) for name, shape in constants.items()}
    with pytest.raises(ToolchainError, match=r"operations an image, over|too large|letter for each axis"):
        check_foreign(graph([node], **arrays), SHAPE, CLASSES)


def test_a_job_is_bounded_in_memory_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = trace(nn.Sequential(nn.Flatten(), nn.Linear(64, 4000)).eval(), SHAPE)
    about = {**vars(foreign.deploy(wide, SHAPE, precision="float32", calibration=NOISE)), "foreign": False}
    blobs = [about.pop("float_onnx"), about.pop("onnx"), np.zeros((8000, *SHAPE), np.uint8).tobytes()]
    with pytest.raises(ToolchainError, match=r"more than 0\.01 s"):
        bounded.run_bounded("run", about, blobs, cpu_s=0.01)
    monkeypatch.setattr(bounded, "MEMORY_BYTES", 64 << 20)  # the logits are 128 MB
    with pytest.raises(ToolchainError, match=r"MemoryError|bad_alloc|memory|allocat"):
        bounded.run_bounded("run", about, blobs)


def test_a_dead_server_costs_one_job(sound: bytes) -> None:
    foreign.check(sound, SHAPE, CLASSES)
    server = bounded._Server.current
    assert server is not None
    os.kill(server._process.pid, signal.SIGKILL)
    server._process.wait()
    assert foreign.check(sound, SHAPE, CLASSES).parameters == 1490


def test_what_is_no_onnx_is_refused() -> None:
    with pytest.raises(ToolchainError, match="no ONNX file"):
        foreign.check(b"\xff" * 99, SHAPE, CLASSES)
