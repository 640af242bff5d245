"""The analytic rung, with numbers worked out by hand."""

from automcu_ray.blocks import lower
from automcu_ray.footprint import check, footprint, live_bytes
from automcu_ray.spec import ArchitectureSpec

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
    # conv 256 | conv1: x 256 + y 256 | conv2: x + y + z | add: x + z, in place | pool: 256 + 4 | linear: 4
    assert live_bytes(GRAPH, 1) == [256, 512, 768, 512, 260, 4]
    assert footprint(GRAPH, "int8").ram_lower_bound_bytes == 768 + 64 + 10
    assert footprint(GRAPH, "float32").ram_lower_bound_bytes == 4 * (768 + 64 + 10)


def test_violation_says_where_and_how_many_bytes_over() -> None:
    ram, flash = check(footprint(GRAPH, "int8"), ram_limit_bytes=800, flash_limit_bytes=100)
    assert (ram.resource, ram.where, ram.over_bytes) == ("ram", "layer_2.conv2", 42)
    assert (flash.resource, flash.where, flash.over_bytes) == ("flash", "layer_2.conv1", 36 + 288 + 40 + 88 - 100)
    assert check(footprint(GRAPH, "int8"), ram_limit_bytes=842, flash_limit_bytes=452) == ()
