import json
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from automcu_ray.core.errors import ToolchainError
from automcu_ray.testing.networks import deployed_network
from backends.int8_graph import Int8Graph, read_int8_graph
from tests.backends.operators import MODELS, Model


def graph(name: str) -> Int8Graph:
    return read_int8_graph(deployed_network(name, "int8"))


def test_operators_come_in_order_with_their_kinds() -> None:
    kinds = [node.kind for node in graph("plain").nodes]
    assert kinds == ["conv", "max_pool", "conv", "conv", "add", "average_pool", "reshape", "linear"]


def test_shapes_scales_and_options_are_those_of_the_deployed_network() -> None:
    found = graph("plain")
    assert found.tensors[found.input].shape == (1, 3, 12, 12)
    assert (found.tensors[found.input].scale, found.tensors[found.input].zero_point) == (1 / 128, 0)
    deployed = deployed_network("plain", "int8")
    end = found.tensors[found.output]
    assert (end.shape, end.scale, end.zero_point) == ((1, 5), deployed.output_scale, deployed.output_zero_point)
    stem, pool = found.nodes[:2]
    assert stem.options["pads"] == [1, 1, 1, 1] and stem.options["group"] == 1
    assert pool.options["kernel_shape"] == [2, 2] and pool.options["strides"] == [2, 2]
    assert found.tensors[pool.inputs[0]].scale == found.tensors[pool.output].scale  # it only moves values


def test_weights_have_a_scale_for_each_output_channel() -> None:
    found = graph("plain")
    for node in (one for one in found.nodes if one.kind in ("conv", "linear")):
        weight, scales, bias = (found.constants[f"{node.output}/{part}"] for part in ("weight", "scales", "bias"))
        assert (weight.dtype, scales.dtype, bias.dtype) == (np.int8, np.float32, np.int32)
        assert len(weight) == len(scales) == len(bias)


def test_global_pooling_is_pooling_of_the_whole() -> None:
    pool = next(node for node in graph("attention").nodes if node.kind == "average_pool")
    assert pool.options["kernel_shape"] == [6, 6] and pool.options["pads"] == [0, 0, 0, 0]


def test_it_is_written_as_json_and_npz(tmp_path: Path) -> None:
    found = graph("attention")
    found.write(tmp_path)
    read = json.loads((tmp_path / "graph.json").read_text())
    assert [node["kind"] for node in read["nodes"]] == [node.kind for node in found.nodes]
    assert read["tensors"][read["input"]]["shape"] == [1, 3, 12, 12]
    with np.load(tmp_path / "constants.npz") as constants:
        assert constants.keys() == found.constants.keys()
        assert all(np.array_equal(constants[name], found.constants[name]) for name in constants)


def test_a_float_network_is_refused() -> None:
    with pytest.raises(ToolchainError, match="int8 network is needed, found precision float32"):
        read_int8_graph(deployed_network("plain", "float32"))


def test_a_constant_that_is_read_like_an_activation_is_refused() -> None:
    with pytest.raises(ToolchainError, match="constant"):
        read_int8_graph(MODELS["add"](default_rng(0)).deployed())


def test_an_operator_or_a_form_that_is_not_known_is_named() -> None:
    model, pool = Model(default_rng(0), (2, 5, 5)), Model(default_rng(0), (2, 5, 5))
    model.add("Relu", "image")
    with pytest.raises(ToolchainError, match="operator Relu"):
        read_int8_graph(model.deployed())
    pool.add("MaxPool", "image", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    with pytest.raises(ToolchainError, match="ceil_mode 1"):
        read_int8_graph(pool.deployed())


@pytest.mark.parametrize(
    ("attributes", "refused"),
    [
        ({}, "coordinate_transformation_mode b'half_pixel'"),
        ({"coordinate_transformation_mode": "asymmetric"}, "nearest_mode b'round_prefer_floor'"),
        ({"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, "operator Concat"),
    ],
)
def test_an_enlarging_is_read_with_the_defaults_of_onnx(attributes: dict[str, str], refused: str) -> None:
    """What is refused last is what stands behind it, so that the enlarging itself has been taken."""
    model = Model(default_rng(0), (2, 4, 4))
    model.add("Resize", "image", "", model.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest", **attributes)
    with pytest.raises(ToolchainError, match=refused):
        read_int8_graph(model.deployed())


def test_two_scales_for_one_tensor_are_an_error() -> None:
    model = Model(default_rng(0), (2, 4, 4))
    other = model.quantised(0.5)
    model.add("QLinearSigmoid", "image", *other, *other)
    with pytest.raises(ToolchainError, match="read with others"):
        read_int8_graph(model.deployed())
