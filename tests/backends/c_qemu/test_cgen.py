import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import deploy
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.lowering import lower
from automcu_ray.networks.search_space import Space
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.precision import Precision
from automcu_ray.sizing.footprint import footprint
from automcu_ray.testing.networks import CLASSES, NETWORKS, SHAPE, deployed_network, images
from backends.c_qemu import emx, emx_patches
from backends.c_qemu.cgen import generate
from backends.c_qemu.planner import lower_bound_bytes
from tests.backends.host import run_on_host

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_the_c_neither_allocates_nor_reads_files_and_its_arena_is_at_the_lower_bound(name: str, precision: str) -> None:
    made = generate(deployed_network(name, precision))
    for word in ("malloc", "free(", "stdlib", "fopen", "stdio"):
        assert word not in made.source
    assert made.arena_bytes == lower_bound_bytes(made.buffers)


@pytest.mark.parametrize("name", NETWORKS)
def test_int8_c_computes_in_float_and_never_in_double(name: str) -> None:
    body = generate(deployed_network(name, "int8")).source
    assert [line for line in body.splitlines() if "f64" in line or "double" in line] == []


@pytest.mark.parametrize(("seed", "precision"), [(2, "int8"), (4, "int8"), (9, "int8"), (9, "float32")])
def test_the_analytic_bound_of_a_spec_is_the_arena_of_its_c(seed: int, precision: Precision) -> None:
    space = Space(input_shape=(3, 9, 14), num_classes=CLASSES)
    spec = space.sample(random.Random(seed)).spec
    assert spec is not None
    graph = space.graph(spec)
    calibration = np.random.default_rng(seed).integers(0, 256, (4, 3, 9, 14), dtype=np.uint8)
    made = deploy(Network(graph).eval(), graph.input_shape, precision=precision, calibration=calibration)
    ends = (3 * 9 * 14 + CLASSES) * made.output_dtype.itemsize
    assert generate(made).arena_bytes == footprint(graph, precision).ram_lower_bound_bytes - ends


JOINED = [
    {"type": "conv", "out_channels": 8},
    {"type": "conv", "out_channels": 8, "groups": 4},
    {"type": "concat"},
    {"type": "downsample", "out_channels": 12},
    {"type": "skip", "back": 3},
    {"type": "conv", "out_channels": 12},
    {"type": "skip", "activation": "none"},
]


@pytest.mark.parametrize("positions", [2, 5])  # pooled from 5 x 7, and as many as the shorter side has
def test_joins_groups_and_positions_are_bit_equal_and_their_arena_is_foreseen(
    positions: int, host_gcc: None, tmp_path: Path
) -> None:
    spec = ArchitectureSpec.model_validate({"backbone": JOINED, "head": {"positions": positions}})
    graph = lower(spec, (3, 9, 14), CLASSES)
    images = np.random.default_rng(0).integers(0, 256, (24, 3, 9, 14), dtype=np.uint8)
    made = deploy(Network(graph).eval(), graph.input_shape, precision="int8", calibration=images[:8])
    assert np.array_equal(run_on_host(made, images, tmp_path), made.run(images))
    assert generate(made).arena_bytes == footprint(graph, "int8").ram_lower_bound_bytes - 3 * 9 * 14 - CLASSES


def test_pooling_at_float32_keeps_no_copy_of_its_window_on_the_stack() -> None:
    source = generate(deployed_network("plain", "float32")).source
    assert "AveragePool" in source
    assert "values[" not in source


def test_the_header_says_how_to_feed_the_network() -> None:
    made = deployed_network("plain", "int8")
    header = generate(made).header
    for line in (
        "#define NET_INPUT_BYTES 432",
        "#define NET_INPUT_SCALE 0.0078125f",
        "#define NET_INPUT_ZERO_POINT 0",
        "#define NET_CLASSES 5",
        f"#define NET_OUTPUT_ZERO_POINT {made.output_zero_point}",
        "void net(const int8_t image[1][3][12][12], int8_t logits[1][5]);",
    ):
        assert line in header


def test_sizes_are_named_after_nodes_that_stand_for_torch_modules() -> None:
    deployed = deployed_network("plain", "int8")
    made = generate(deployed)
    assert made.weights["node0_quant"] > 8 * 3 * 3 * 3
    assert "node0_quant" in made.made_by.values() and deployed.in_words("node0_quant") == "stem.0"


def test_an_operator_unknown_to_the_generator_is_named() -> None:
    made = deployed_network("plain", "float32")
    broken = made.onnx.replace(b"AveragePool", b"AverageFool")
    with pytest.raises(ToolchainError):
        generate(dataclasses.replace(made, onnx=broken))


def test_a_template_that_changed_is_an_error_and_not_wrong_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(emx_patches.PATCHES, "conv_op.c.j2", (("text of another version", ""),))
    emx._compiler.cache_clear()
    try:
        with pytest.raises(ToolchainError, match="unsupported version"):
            generate(deployed_network("plain", "float32"))
    finally:
        emx._compiler.cache_clear()


def test_leftover_allocations_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emx._ArenaEmitter, "_emit_weight_loader", lambda *_: "void *x(void){return malloc(1);}")
    with pytest.raises(ToolchainError, match=r"found malloc\(\)"):
        generate(deployed_network("plain", "float32"))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_thousand_images_are_bit_equal_to_onnxruntime_on_the_host(name: str, host_gcc: None, tmp_path: Path) -> None:
    made = deployed_network(name, "int8")
    rng = np.random.default_rng(3)
    batch = images(1000, seed=4)
    batch[2:300] = rng.choice(np.array([0, 255], np.uint8), (298, *SHAPE))
    batch[300:600] = rng.integers(0, 256, (300, 3, 1, 1))
    assert np.array_equal(run_on_host(made, batch, tmp_path), made.run(batch))
