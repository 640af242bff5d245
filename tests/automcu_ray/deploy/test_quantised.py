"""Files that are quantised already: their own scales stay, the C gives onnxruntime's bits, the rest is refused."""

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from torch import Tensor, nn

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy import adoption, foreign
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.deploy.pixels import KNOWN, Pixels
from automcu_ray.deploy.quantised.network import deploy_quantised, own_answers, steps_apart
from automcu_ray.testing.networks import deployed_network
from tests.backends.host import run_on_host

SHAPE, CLASSES = (3, 12, 12), 4
IMAGES = np.random.default_rng(0).integers(0, 256, (24, *SHAPE), dtype=np.uint8)


class Mixed(nn.Module):
    """A residual, a depthwise convolution, a function, both pools, joins, a slice, a mean, a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, stride=2)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8))
        self.side, self.head = nn.Conv2d(8, 4, 1), nn.Linear(20, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu6(self.stem(x))
        x = torch.relu(x + self.body(x))
        x = torch.cat([x, F.hardswish(self.side(x))], 1)
        x = torch.cat([F.max_pool2d(x, 2), F.avg_pool2d(x, 2)], 1)[:, 2:22]
        return torch.softmax(self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)), 1)


class Calibration(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        self.batches = iter([{"x": KNOWN["unit"].of(IMAGES)}])

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        return next(self.batches, None)


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def float_file(tmp_path_factory: pytest.TempPathFactory, quiet: None) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("float") / "float.onnx"
    torch.onnx.export(
        Mixed().eval(),
        (torch.zeros(2, *SHAPE),),
        str(path),
        input_names=["x"],
        dynamo=False,
        opset_version=17,
        dynamic_axes={"x": {0: "batch"}},
    )
    return path


def by_onnxruntime(source: Path, folder: Path, form: QuantFormat, activations: QuantType, **options: Any) -> bytes:
    made = folder / "made.onnx"
    quantize_static(source, made, Calibration(), quant_format=form, activation_type=activations, **options)
    return made.read_bytes()


def taken(file: bytes, pixels: Pixels = KNOWN["unit"]) -> tuple[DeployedNetwork, float, list[str]]:
    """Return the network, how many steps it is from the file's own answers, and what is said."""
    adopted, changes = adoption.adopt(file, SHAPE, CLASSES, pixels)
    deployed, notes = deploy_quantised(adopted, SHAPE, IMAGES)
    own = own_answers(file, SHAPE, pixels, IMAGES)
    assert len(own.answers) == len(IMAGES)
    return deployed, steps_apart(deployed, own, deployed.run(IMAGES)), changes + notes


@pytest.mark.parametrize(
    ("form", "activations", "per_channel", "steps"),
    [
        (QuantFormat.QDQ, QuantType.QInt8, True, 1),  # float sums may fall on the other side of a half
        (QuantFormat.QDQ, QuantType.QUInt8, False, 1),
        (QuantFormat.QOperator, QuantType.QUInt8, True, 0),
        (QuantFormat.QOperator, QuantType.QInt8, False, 0),
    ],
)
def test_onnxruntimes_forms_keep_their_scales_and_become_the_same_bits_in_c(
    form: QuantFormat,
    activations: QuantType,
    per_channel: bool,
    steps: int,
    float_file: Path,
    host_gcc: None,
    tmp_path: Path,
) -> None:
    file = by_onnxruntime(float_file, tmp_path, form, activations, per_channel=per_channel)
    deployed, apart, said = taken(file)
    assert apart <= steps and said == ["Softmax at the end left out: the largest logit is the same class"]
    found = deployed.run(IMAGES)
    assert len(np.unique(found)) > 20
    assert np.array_equal(run_on_host(deployed, IMAGES, tmp_path), found)
    scales = {round(float(value), 9) for value in scales_of(file)}
    assert {round(float(value), 9) for value in scales_of(deployed.onnx)} <= scales


def test_a_linear_layer_may_be_a_product_and_a_sum_as_tf2onnx_writes_it(float_file: Path, tmp_path: Path) -> None:
    file = by_onnxruntime(float_file, tmp_path, QuantFormat.QDQ, QuantType.QInt8)
    model = onnx.load_from_string(file)
    nodes = model.graph.node
    (gemm,) = [node for node in nodes if node.op_type == "Gemm"]
    (pair,) = [node for node in nodes if node.output[0] == gemm.input[1]]
    (weights,) = [tensor for tensor in model.graph.initializer if tensor.name == pair.input[0]]
    weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights).T.copy(), weights.name))
    nodes.insert(list(nodes).index(gemm), helper.make_node("MatMul", gemm.input[:2], ["product"]))
    gemm.CopyFrom(helper.make_node("Add", ["product", gemm.input[2]], gemm.output))
    _, apart, _ = taken(model.SerializeToString())
    assert apart <= 1


def scales_of(model: bytes) -> list[float]:
    tensors = onnx.load_from_string(model).graph.initializer
    return [numpy_helper.to_array(t).item() for t in tensors if t.data_type == TensorProto.FLOAT and not t.dims]


def test_a_network_of_ours_comes_back_as_it_left() -> None:
    ours = deployed_network("attention", "int8")
    adopted = foreign.adopt(ours.onnx, ours.input_shape, ours.num_classes, KNOWN["unit"])
    batch = np.random.default_rng(1).integers(0, 256, (16, *ours.input_shape), dtype=np.uint8)
    how: Any = {"pixels": KNOWN["unit"], "calibration": batch}
    again, said = foreign.deploy_quantised(adopted.model, ours.onnx, ours.input_shape, **how)
    assert adopted.quantised and "at most 0 of 256 steps" in said[0]
    assert np.array_equal(again.run(batch), ours.run(batch))
    holds = foreign.check(adopted.model, ours.input_shape, ours.num_classes, pairs=True)
    assert holds.macs > 0 and holds.stored > 0
    with pytest.raises(ToolchainError, match="quantizeLinear is not among the known"):  # code brings none
        foreign.check(adopted.model, ours.input_shape, ours.num_classes)


def test_pixels_that_differ_by_channel_become_a_table_each(float_file: Path, host_gcc: None, tmp_path: Path) -> None:
    file = by_onnxruntime(float_file, tmp_path, QuantFormat.QDQ, QuantType.QInt8)
    deployed, apart, said = taken(file, KNOWN["imagenet"])
    assert apart <= 1 and any("tables in front" in one for one in said)
    assert np.array_equal(run_on_host(deployed, IMAGES, tmp_path), deployed.run(IMAGES))


def test_what_torch_writes_comes_in(host_gcc: None, tmp_path: Path) -> None:
    """uint8 activations, casts, biases that are worked out in the file."""
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    values = torch.from_numpy(KNOWN["unit"].of(IMAGES))
    engine = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    try:
        prepared = prepare_fx(network.eval(), get_default_qconfig_mapping("fbgemm"), (values[:1],))
        prepared(values)
        buffer = io.BytesIO()
        torch.onnx.export(convert_fx(prepared), (values[:1],), buffer, dynamo=False, opset_version=17)  # type: ignore[arg-type]
    finally:
        torch.backends.quantized.engine = engine
    deployed, apart, _ = taken(buffer.getvalue())
    assert apart <= 1
    assert np.array_equal(run_on_host(deployed, IMAGES, tmp_path), deployed.run(IMAGES))


# Files written by hand: what other exporters do, and what is refused -------------------------------------------------


def pair(name: str, of: str, scale: str = "s", zero: str = "z") -> list[onnx.NodeProto]:
    return [
        helper.make_node("QuantizeLinear", [of, scale, zero], [f"{name}_q"]),
        helper.make_node("DequantizeLinear", [f"{name}_q", scale, zero], [name]),
    ]


def by_hand(between: list[onnx.NodeProto], *, ending: bool = True, opset: int = 17, **constants: Any) -> bytes:
    """Return images, a pair, a convolution "conv", `between` (from "c" to "m"), a mean, a linear layer."""
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {
        "s": np.float32(1 / 64),
        "z": np.int8(-3),
        "w": rng.integers(-100, 101, (4, 3, 3, 3)).astype(np.int8),
        "ws": np.array([0.003, 0.001, 0.002, 0.0015], np.float32),
        "wz": np.zeros(4, np.int8),
        "h": rng.integers(-127, 128, (CLASSES, 4)).astype(np.int8),
        "hs": np.float32(0.01),
        "hz": np.int8(0),
        "b": rng.normal(0, 0.1, 4).astype(np.float32),
        **constants,
    }
    nodes = [
        *pair("i", "x"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wr"], axis=0),
        helper.make_node("Conv", ["i", "wr", "b"], ["c"], name="conv"),
        *between,
        helper.make_node("GlobalAveragePool", ["m"], ["g"], name="mean"),
        *pair("gr", "g"),
        helper.make_node("Flatten", ["gr"], ["f"]),
        helper.make_node("DequantizeLinear", ["h", "hs", "hz"], ["hr"]),
        helper.make_node("Gemm", ["f", "hr"], ["y" if not ending else "l"], name="head", transB=1),
        *(pair("y", "l") if ending else []),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (1, *SHAPE)), ("y", (1, CLASSES)))
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in given.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], tensors)
    made: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return bytes(made.SerializeToString())


RELU = [helper.make_node("Relu", ["c"], ["r"], name="relu"), *pair("m", "r")]
NORM = helper.make_node("BatchNormalization", ["c", "n0", "n1", "n2", "n3"], ["n"], name="norm")
NORMS = {
    f"n{i}": np.array(v, np.float32) for i, v in enumerate(([1, -2, 0.5, 3], [0.1, 0, 0, 1], [0, 1, 0, 0], [1] * 4))
}
WIDE = np.array([0.05, 0.02, 0.03, 0.04], np.float32)
FEW = np.clip(np.random.default_rng(0).integers(-9, 9, (4, 3, 3, 3)), -7, 7)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (by_hand(RELU), "bias rounded"),
        (by_hand([NORM, helper.make_node("Relu", ["n"], ["r"]), *pair("m", "r")], **NORMS), "bias rounded"),
        (by_hand(RELU, ending=False), "no scale for its answer"),
        (  # few bits: integers are cut between a pair
            by_hand(
                [
                    helper.make_node("QuantizeLinear", ["c", "s4", "z4"], ["cq"]),
                    helper.make_node("Clip", ["cq", "low", "high"], ["cc"], name="four_bits"),
                    helper.make_node("DequantizeLinear", ["cc", "s4", "z4"], ["m"]),
                ],
                w=FEW.astype(np.int8),
                ws=WIDE,
                s4=np.float32(1 / 12),
                z4=np.uint8(0),
                low=np.uint8(0),
                high=np.uint8(15),
            ),
            "bias rounded",
        ),
        (by_hand(RELU, w=(FEW + 130).astype(np.uint8), wz=np.full(4, 130, np.uint8), ws=WIDE), "bias rounded"),
    ],
    ids=["float bias", "batch norm between", "float answer", "four bits", "uint8 weights"],
)
def test_other_exporters_files_come_in(file: bytes, words: str, host_gcc: None, tmp_path: Path) -> None:
    deployed, apart, said = taken(file)
    assert apart <= 1 and any(words in one for one in said)
    found = deployed.run(IMAGES)
    assert len(np.unique(found)) > 10
    assert np.array_equal(run_on_host(deployed, IMAGES, tmp_path), found)


def edited(change: Callable[[onnx.GraphProto], None]) -> bytes:
    model = onnx.load_from_string(by_hand(RELU))
    change(model.graph)
    return bytes(model.SerializeToString())


def dynamic(graph: onnx.GraphProto) -> None:
    graph.node[0].CopyFrom(helper.make_node("DynamicQuantizeLinear", ["x"], ["i_q", "s2", "z2"]))


def half_scales(graph: onnx.GraphProto) -> None:
    tensor = next(one for one in graph.initializer if one.name == "s")
    tensor.CopyFrom(numpy_helper.from_array(np.float16(0.1), "s"))


def no_weights(graph: onnx.GraphProto) -> None:
    graph.initializer.append(numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "wr"))
    graph.node.remove(graph.node[2])


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (lambda: by_hand(RELU, z=np.int16(0)), "int16 quantisation has no kernels here"),
        (lambda: by_hand(RELU, wz=np.full(4, 99, np.int8)), r"Conv \(conv\).*nine bits.*symmetrically"),
        (lambda: by_hand([helper.make_node("Relu", ["c"], ["m"])]), r"GlobalAveragePool \(mean\): it reads what Conv"),
        (lambda: by_hand([helper.make_node("Sigmoid", ["c"], ["r"]), *pair("m", "r")]), r"Sigmoid.*reads what Conv"),
        (lambda: by_hand([*pair("p", "c"), helper.make_node("Softmax", ["p"], ["r"]), *pair("m", "r")]), "^Softmax"),
        (lambda: edited(dynamic), "DynamicQuantizeLinear: it is quantised dynamically"),
        (lambda: edited(half_scales), "its scales are float16"),
        (lambda: edited(no_weights), "its weights are float in the file"),
    ],
    ids=["int16", "weights askew", "no scale", "function of floats", "softmax", "dynamic", "half", "float weights"],
)
def test_what_has_no_int8_form_is_refused_by_name(file: Callable[[], bytes], words: str) -> None:
    with pytest.raises(ToolchainError, match=words) as caught:
        taken(file())
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_four_bit_tensors_are_named() -> None:
    def narrow(graph: onnx.GraphProto) -> None:
        tensor = next(one for one in graph.initializer if one.name == "w")
        tensor.CopyFrom(helper.make_tensor("w", TensorProto.INT4, (4, 3, 3, 3), FEW.reshape(-1).tolist()))

    with pytest.raises(ToolchainError, match="4-bit quantisation has no kernels here"):
        taken(edited(narrow))
