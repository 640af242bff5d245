"""Which hardware layers a network becomes, and what the accelerators refuse."""

import pytest

from automcu_ray.networks.graph import Graph
from backends.ai8x.limits import Refused, check_operators
from backends.ai8x.network import Layer, Pool, layers
from tests.backends.ai8x.networks import conv, make_graph, read_target


def check(graph: Graph, target: str = "max78000") -> None:
    accelerator = read_target(target).accelerator
    assert accelerator is not None
    check_operators(graph, accelerator)


def test_a_sum_reads_interleaved_operands_and_relu_needs_an_identity() -> None:
    found = layers(make_graph([conv(8), {"type": "residual", "out_channels": 8}]))
    assert [(layer.name, layer.inputs, layer.weights, layer.interleaved) for layer in found] == [
        ("layer_1.conv", (-1,), "own", False),
        ("layer_2.conv1", (0,), "own", False),
        ("layer_2.conv2", (1,), "own", True),  # nobody else reads it: written where the sum wants it
        ("layer_2.add", (0,), "none", True),  # conv1 has read the block's input, too: it is copied
        ("layer_2.add", (3, 2), "identity", False),
        ("head.linear", (4,), "own", False),
    ]
    assert [layer.weight_bytes for layer in found] == [3 * 8 * 9, 8 * 8 * 9, 8 * 8 * 9, 0, 64, 80]
    assert [layer.biases for layer in found] == [8, 8, 8, 0, 0, 10]


def test_a_sum_without_relu_passes_data_through() -> None:
    found = layers(make_graph([conv(8), {"type": "bottleneck", "out_channels": 8, "activation": "none"}]))
    assert [layer.weights for layer in found if len(layer.inputs) == 2] == ["none"]


def test_pooling_joins_the_convolution_behind_it() -> None:
    found = layers(make_graph([conv(8), {"type": "max_pool"}, conv(4, kernel_size=1)]))
    assert [layer.name for layer in found] == ["layer_1.conv", "layer_3.conv", "head.linear"]
    assert found[1].pool == Pool(average=False, window=(2, 2), stride=2)
    assert (found[1].in_shape, found[1].shape) == ((8, 16, 16), (4, 8, 8))


def test_pooling_that_two_operators_read_is_a_layer() -> None:
    found = layers(make_graph([conv(8), {"type": "avg_pool"}, {"type": "residual", "out_channels": 8}]))
    assert (found[1].name, found[1].weights, found[1].pool) == ("layer_2.pool", "none", Pool(True, (2, 2), 2))


def test_the_head_averages_the_whole_map_and_keeps_32_bits() -> None:
    head = layers(make_graph([conv(8)], (3, 12, 10)))[-1]
    assert head == Layer("head.linear", (0,), (8, 12, 10), (10, 1, 1), "own", pool=Pool(True, (12, 10), 1), wide=True)


@pytest.mark.parametrize(
    ("layer", "where", "reason"),
    [
        (conv(8, kernel_size=5), "layer_1.conv", "kernel_size 5, it does 1, 3"),
        (conv(8, stride=2), "layer_1.conv", "stride 2, it does 1"),
        (conv(8, activation="relu6"), "layer_1.conv", "activation relu6, it does relu, none"),
        ({"type": "depthwise"}, "layer_1.depthwise", "a convolution in 3 groups"),
        ({"type": "mbconv", "out_channels": 8, "se_ratio": 0.5}, "layer_1.mul", "it has no operator mul"),
        ({"type": "ghost", "out_channels": 8}, "layer_1.concat", "it has no operator concat"),
    ],
)
def test_what_the_accelerator_cannot_run_is_named_with_the_reason(layer: dict, where: str, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        check(make_graph([layer]))
    named = {violation.where: violation for violation in refused.value.violations}
    assert named[where].message == f"{where}: MAX78000 cannot run it: {reason}"
    assert (named[where].resource, named[where].rung) == ("operator", "analytic")


def test_a_map_too_large_to_average_is_refused() -> None:
    with pytest.raises(Refused, match=r"head\.global_pool: .* a pooling window of 17, more than 16"):
        check(make_graph([conv(8)], (3, 17, 17)))
    check(make_graph([conv(8)], (3, 16, 16)))


def test_max78002_runs_depthwise_convolutions() -> None:
    check(make_graph([{"type": "mbconv", "out_channels": 8}], target="max78002"), "max78002")
    with pytest.raises(Refused, match="groups"):  # one input channel to two output channels each: neither kind
        check(make_graph([{"type": "ghost", "out_channels": 12, "ratio": 3}]), "max78002")
