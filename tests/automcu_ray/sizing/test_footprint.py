"""The analytic rung, with numbers worked out by hand."""

import pytest

from automcu_ray.networks.graph import NETWORK_INPUT, Graph, GraphBuilder
from automcu_ray.networks.lowering import lower
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.sizing.footprint import check, footprint, min_ram_bytes, steps
from automcu_ray.sizing.peak_memory import best_order, live_sizes

SPEC = ArchitectureSpec.model_validate(
    {"backbone": [{"type": "conv", "out_channels": 4}, {"type": "residual", "out_channels": 4}]}
)
GRAPH = lower(SPEC, (1, 8, 8), 10)


def test_parameters_and_macs_by_hand() -> None:
    found = footprint(GRAPH, "int8")
    weights = 4 * 1 * 9 + 2 * (4 * 4 * 9) + 10 * 4
    biases = 4 + 4 + 4 + 10
    assert found.parameters == weights + biases
    assert found.macs == (4 * 9 + 2 * 144) * 64 + 40
    assert found.flash_lower_bound_bytes == weights + 4 * biases


def test_skip_connection_keeps_its_input_alive() -> None:
    # conv x 256 | conv1: x + y | conv2: x + y + z, z over y but for 3 planes, a row and a pixel (3 * 64 + 9)
    # | add: x + z, in place | pool: 256, in place | linear: 4, the output lies elsewhere
    made = steps(GRAPH, "float32")
    assert live_sizes(made, range(6)) == [256, 512, 512 + 201, 512, 256, 4]
    assert footprint(GRAPH, "int8").ram_lower_bound_bytes == 713 + 39 + 64 + 10  # a window of 4 * 9, and 3
    assert footprint(GRAPH, "float32").ram_lower_bound_bytes == 4 * (713 + 64 + 10)
    assert footprint(GRAPH, "int8").widest_moment == "layer_2.conv2"


def test_a_projection_runs_when_it_needs_least() -> None:
    # x 4*64 -> conv1 and project 8*16, stride 2 -> conv2 8*16 -> add. In the spec's order x stays during conv2:
    # x + conv1 + conv2, of which 11 bytes shared. With project second: x + conv1 + project, 25 shared (backwards).
    spec = ArchitectureSpec.model_validate(
        {"backbone": [{"type": "conv", "out_channels": 4}, {"type": "residual", "out_channels": 8, "stride": 2}]}
    )
    made = steps(lower(spec, (1, 8, 8), 10), "float32")
    assert max(live_sizes(made, range(7))) == 256 + 128 + 128 - (128 - 7 * 16 - 4 - 1)
    assert best_order(made) == [0, 1, 3, 2, 4, 5, 6]
    assert max(live_sizes(made, best_order(made))) == 256 + 128 + 128 - 25


def test_a_gated_product_takes_the_place_of_its_factors() -> None:
    spec = ArchitectureSpec.model_validate(
        {"backbone": [{"type": "mbconv", "out_channels": 4, "expansion": 8, "se_ratio": 0.25}]}
    )
    graph = lower(spec, (1, 8, 8), 10)
    product = next(at for at, op in enumerate(graph.ops) if op.kind == "mul")
    assert live_sizes(steps(graph, "float32"), range(len(graph.ops)))[product] == 8 * 64 + 8


def test_what_may_be_fused_is_not_in_the_floor_for_every_toolchain() -> None:
    # conv1's output beside x, 512; conv2's and the sum's are read only by a sum and a pool
    assert min_ram_bytes(GRAPH, "int8") == 512
    assert min_ram_bytes(GRAPH, "float32") == 4 * 512


def test_violation_says_where_and_how_many_bytes_over() -> None:
    ram, flash = check(footprint(GRAPH, "int8"), ram_limit_bytes=784, flash_limit_bytes=100)
    assert (ram.resource, ram.where, ram.over_bytes) == ("ram", "layer_2.conv2", 42)
    assert (flash.resource, flash.where, flash.over_bytes) == ("flash", "layer_2.conv1", 36 + 288 + 40 + 88 - 100)
    assert check(footprint(GRAPH, "int8"), ram_limit_bytes=826, flash_limit_bytes=452) == ()


@pytest.mark.parametrize("fused", ["max_pool", "avg_pool", "global_pool", "add"])
def test_each_kind_that_may_be_fused_leaves_the_image_as_the_floor(fused: str) -> None:
    builder = GraphBuilder((1, 4, 4))
    wide = builder.conv("a", NETWORK_INPUT, 8, kernel=3)  # 128 elements that need not exist whole
    if fused == "add":
        wide = builder.join("add", [wide, builder.conv("b", NETWORK_INPUT, 8, kernel=3)])
    small = builder.pool(fused, wide, 4, 4) if fused in ("max_pool", "avg_pool") else builder.global_pool(wide)
    builder.linear(small, 10)
    assert min_ram_bytes(Graph((1, 4, 4), tuple(builder.ops)), "int8") == 16
    builder.ops[-1:] = []
    builder.conv("c", wide, 1)  # reads it: over the image that dies
    assert min_ram_bytes(Graph((1, 4, 4), tuple(builder.ops)), "int8") >= 128
