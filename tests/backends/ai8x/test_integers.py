"""The accelerator's integer arithmetic: rules by hand, and how close it stays to the float network."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.networks.graph import NETWORK_INPUT, Graph, Op
from automcu_ray.problem.target import Constraints
from automcu_ray.testing.networks import deployed_network
from backends.ai8x.backend import convert
from backends.ai8x.float_graph import Source, read
from backends.ai8x.integers import IDENTITY, IntegerLayer, IntegerNetwork, quantise
from backends.ai8x.limits import Refused
from backends.ai8x.network import Layer, Pool
from tests.backends.ai8x.networks import conv, deploy_graph, images, make_graph, read_target


def run_one(layer: Layer, values: IntegerLayer, data: list[Any]) -> list[Any]:
    inputs = np.array(data, dtype=np.int8).reshape(1, *layer.in_shape)
    found: list[Any] = IntegerNetwork((layer,), (values,), 1.0).run(inputs)[0].tolist()
    return found


def pixel(outputs: int = 1, **about: Any) -> Layer:
    return Layer("conv", (NETWORK_INPUT,), (2, 1, 1), (outputs, 1, 1), "own", **about)


def weights(*rows: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(rows, dtype=np.int64).reshape(len(rows), -1, 1, 1)


@pytest.mark.parametrize(("shift", "expected"), [(0, 2), (1, 5), (-1, 1), (7, 127)])
def test_outputs_are_shifted_then_rounded(shift: int, expected: int) -> None:
    # 10 * 16 + 10 * 2 + 128 * 1 = 308; times 2^shift / 128: 2.41, 4.81, 1.20, 308
    assert run_one(pixel(), IntegerLayer(weights([10, 10]), np.array([1]), shift), [16, 2]) == [expected]


def test_halves_go_up_also_below_zero() -> None:
    assert run_one(pixel(), IntegerLayer(weights([64, 0])), [1, 0]) == [1]  # 0.5
    assert run_one(pixel(), IntegerLayer(weights([-64, 0])), [1, 0]) == [0]  # -0.5
    assert run_one(pixel(), IntegerLayer(weights([-64, 0])), [3, 0]) == [-1]  # -1.5


def test_outputs_saturate_unless_they_are_wide() -> None:
    values = IntegerLayer(weights([127, 127]), None, 3)
    assert run_one(pixel(), values, [-128, -128]) == [-128]
    assert run_one(pixel(relu=True), values, [-128, -128]) == [0]
    assert run_one(pixel(wide=True), values, [-128, -128]) == [-2 * 127 * 128]


def test_an_identity_changes_nothing() -> None:
    values = IntegerLayer(IDENTITY * np.eye(2, dtype=np.int64).reshape(2, 2, 1, 1), None, 1)
    for value in (-128, -1, 0, 1, 127):
        assert run_one(pixel(2), values, [value, 5]) == [value, 5]


def test_averages_are_rounded_to_the_nearest_halves_away_from_zero() -> None:
    layer = Layer("pool", (NETWORK_INPUT,), (1, 2, 2), (1, 1, 1), pool=Pool(True, (2, 2), 1))
    found = [run_one(layer, IntegerLayer(), data) for data in ([0, 0, 0, 2], [0, 0, 0, 1], [0, 0, 0, -2], [3, 3, 3, 2])]
    assert found == [[1], [0], [-1], [3]]


def test_sums_saturate() -> None:
    copy = Layer("add", (NETWORK_INPUT,), (1, 1, 1), (1, 1, 1), interleaved=True)
    both = Layer("add", (0, 1), (1, 1, 1), (1, 1, 1))
    network = IntegerNetwork((copy, copy, both), (IntegerLayer(),) * 3, 1.0)
    assert network.run(np.array([100, -100, 20], np.int8).reshape(3, 1, 1, 1)).tolist() == [[127], [-128], [40]]


def test_weights_take_the_scale_that_a_power_of_two_leaves() -> None:
    graph = Graph((2, 1, 1), (Op("linear", "fc", (-1,), (2, 1, 1), (1, 1, 1)),))
    layer = Layer("fc", (NETWORK_INPUT,), (2, 1, 1), (1, 1, 1), "own")
    source = Source(
        graph, {"fc": np.array([[0.5, -0.25]], np.float32)}, {"fc": np.array([0.25], np.float32)}, {"fc": 1.0}
    )
    (values,) = quantise([layer, dataclasses.replace(layer, wide=True)], source).values[:1]
    # output scale 1/127; a weight is 2^shift / 127 of it: the finest at which 0.5 is at most 127 is 2^-1 / 127
    assert values.shift == -1 and values.weights is not None and values.biases is not None
    assert values.weights.ravel().tolist() == [127, -64]  # 0.5 * 254, -63.5 to the even one
    assert values.biases.tolist() == [64]  # 0.25 * 254 = 63.5, to the even one


def test_a_bias_too_large_for_8_bits_makes_weights_coarser() -> None:
    graph = Graph((1, 1, 1), (Op("linear", "fc", (-1,), (1, 1, 1), (1, 1, 1)),))
    layer = Layer("fc", (NETWORK_INPUT,), (1, 1, 1), (1, 1, 1), "own", wide=True)
    source = Source(graph, {"fc": np.array([[1.0]], np.float32)}, {"fc": np.array([-4.0], np.float32)}, {})
    (values,) = quantise([layer], source).values
    assert values.weights is not None and values.biases is not None
    assert (values.weights.item(), values.biases.item()) == (32, -127)  # a quarter of 127, to the even one


@pytest.mark.parametrize(
    "layers",
    [
        [conv(8), {"type": "max_pool"}, conv(12, kernel_size=1), {"type": "avg_pool"}, conv(16)],
        [conv(8), {"type": "residual", "out_channels": 8}, {"type": "bottleneck", "out_channels": 8, "expansion": 2}],
        [conv(72), {"type": "residual", "out_channels": 80, "kernel_size": 1}],
    ],
)
def test_integers_follow_the_float_network(layers: list[dict[str, Any]]) -> None:
    deployed = deploy_graph(make_graph(layers))
    network, _ = convert(deployed, read_target(), Constraints())
    seen = images((3, 16, 16))
    as_float = dataclasses.replace(deployed, precision="float32", onnx=deployed.float_onnx).run(seen)
    found = network.run(deployed.encode(seen)) * network.output_scale
    assert np.abs(found - as_float).max() < 0.1 * np.abs(as_float).max()
    assert np.corrcoef(found.ravel(), as_float.ravel())[0, 1] > 0.99


def test_accuracy_counts_the_largest_output() -> None:
    layer = Layer("fc", (NETWORK_INPUT,), (1, 1, 1), (2, 1, 1), "own", wide=True)
    network = IntegerNetwork((layer,), (IntegerLayer(weights([1], [-1])),), 1.0)
    pixels = np.array([0, 255, 255, 128], np.uint8).reshape(4, 1, 1, 1)  # -128, 127, 127, 0: classes 1, 0, 0, 0 (a tie)
    assert network.accuracy(pixels, np.array([1, 0, 1, 1])) == 0.5


def test_an_onnx_graph_reads_as_the_graph_it_was_made_from() -> None:
    graph = make_graph([conv(8), {"type": "residual", "out_channels": 12}, {"type": "max_pool"}, {"type": "avg_pool"}])
    found = read(deploy_graph(graph))
    assert found.graph.ops == tuple(dataclasses.replace(op, use_bn=False) for op in graph.ops)  # folded into weights
    assert found.weights["layer_2.project"].shape == (12, 8, 1, 1)
    assert set(found.weights) == set(found.biases) == {op.name for op in graph.ops if op.weights}
    assert {op.name for op in graph.ops if op.kind == "conv"} <= set(found.reach)


def test_generated_code_with_unknown_operators_is_refused_by_name() -> None:
    with pytest.raises(Refused) as refused:
        read(deployed_network("attention", "int8"))
    (violation,) = refused.value.violations
    assert (violation.resource, violation.message) == ("operator", f"{violation.where}: it has no operator Concat")


def test_flattened_maps_are_linear_layers_of_generated_code() -> None:
    deployed: DeployedNetwork = deployed_network("viewed", "int8")
    with pytest.raises(Refused, match="stride 4"):  # its one convolution; the flattening behind it is fine
        convert(deployed, read_target(), Constraints())
    (linear,) = [op for op in read(deployed).graph.ops if op.kind == "linear"]
    assert linear.in_shape == (4, 3, 3)
