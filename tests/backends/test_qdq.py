import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

from automcu_ray.deploy.export import deploy, normalize
from automcu_ray.testing.networks import CLASSES, NETWORKS, SHAPE, deployed_network, images
from backends.qdq import importable, result_name


def run(model: bytes, level: str, *switched_on: str) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = getattr(ort.GraphOptimizationLevel, level), 3
    for key in switched_on:
        options.add_session_config_entry(key, "1")
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    batch = normalize(images(32, seed=5))
    return np.concatenate([session.run(None, {"image": one[None]})[0] for one in batch])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    "options",
    [
        ["ORT_DISABLE_ALL"],
        ["ORT_ENABLE_BASIC"],
        ["ORT_ENABLE_ALL", "session.qdqisint8allowed"],
        ["ORT_ENABLE_ALL", "session.x64quantprecision"],
    ],
    ids="-".join,
)
def test_quantise_and_dequantise_pairs_are_the_same_network(name: str, options: list[str]) -> None:
    """With the options that `backends.qdq` asks for: without them, fused kernels saturate on x86 without VNNI."""
    made = deployed_network(name, "int8")
    assert made.output_scale is not None and made.output_zero_point is not None
    expected = (made.run(images(32, seed=5)).astype(np.float32) - made.output_zero_point) * made.output_scale
    np.testing.assert_array_equal(run(importable(made), *options), expected)


def test_importers_get_standard_operators_of_one_image_and_an_old_opset() -> None:
    model = onnx.load_from_string(importable(deployed_network("plain", "int8")))
    onnx.checker.check_model(model, full_check=True)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", 17)]
    assert model.ir_version == 8
    assert [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim] == [1, 3, 12, 12]
    kinds = {node.op_type for node in model.graph.node}
    assert {"QuantizeLinear", "DequantizeLinear", "Conv", "Gemm", "Add"} <= kinds
    assert not any(kind.startswith(("QLinear", "QGemm")) for kind in kinds)


def test_a_result_is_named_after_its_node() -> None:
    made = deployed_network("plain", "int8")
    results = {name for node in onnx.load_from_string(importable(made)).graph.node for name in node.output}
    assert {result_name(node.name) for node in onnx.load_from_string(made.onnx).graph.node} <= results


def test_float32_keeps_its_operators() -> None:
    made = deployed_network("viewed", "float32")
    model = onnx.load_from_string(importable(made))
    assert [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim] == [1, 3, 12, 12]
    found = run(importable(made), "ORT_ENABLE_ALL")
    np.testing.assert_allclose(found, made.run(images(32, seed=5)), rtol=1e-5)


class Rest(nn.Module):
    """What the networks above lack: leaky ReLU, channel shuffle, nearest resize, padded pools, dilation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.wide = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=2, dilation=2)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.leaky_relu(self.stem(x), 0.125)
        x = x.reshape(-1, 2, 4, 12, 12).transpose(1, 2).reshape(-1, 8, 12, 12)
        x = nn.functional.avg_pool2d(nn.functional.max_pool2d(x, 3, 2, padding=1), 3, 1, padding=1)
        x = self.wide(nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def test_the_other_operators_of_the_exporter_have_a_float_form() -> None:
    torch.manual_seed(0)
    made = deploy(Rest().eval(), SHAPE, precision="int8", calibration=images(64, seed=9))
    wanted = made.run(images(32, seed=5)).astype(int)
    assert made.output_scale is not None and made.output_zero_point is not None
    found = run(importable(made), "ORT_DISABLE_ALL")
    steps = np.round(found / made.output_scale).astype(int) + made.output_zero_point
    assert len(np.unique(wanted)) > 20  # else little was compared
    assert np.abs(steps - wanted).max() <= 1  # float operators may round a tie another way
