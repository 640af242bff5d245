"""Cells as networks: the benchmark's own counts of weights and operations, and what its skeleton looks like."""

from collections import Counter
from random import Random

import pyarrow.parquet as pq
import pytest
import torch

from automcu_ray.core.errors import ConfigError
from automcu_ray.deploy.torch_network import Network, spec_names
from automcu_ray.networks.cell import EDGES, CellSpec
from automcu_ray.networks.cell_network import Skeleton, lower_cell
from automcu_ray.networks.cell_space import CellSpace
from automcu_ray.networks.graph import ConstructibilityError, Graph, Op
from automcu_ray.sizing.footprint import footprint, min_ram_bytes
from tests.automcu_ray.networks.test_cell_space import cell
from trainables.datasets.base import data_folder

BENCHMARK, SMALL = Skeleton(), Skeleton(channels=4, per_stage=1)
COLOUR, GREY = (3, 32, 32), (1, 8, 8)
# A convolution of the cell, in all 15: weights and batch norm. A kernel's pixel takes 16^2 x 32^2 MACs in any stage.
WEIGHTS = {name: 5 * sum(area * c * c + 2 * c for c in (16, 32, 64)) for name, area in
           (("nor_conv_1x1", 1), ("nor_conv_3x3", 9))}  # fmt: skip
MACS = {name: 15 * area * 16**2 * 32**2 for name, area in (("nor_conv_1x1", 1), ("nor_conv_3x3", 9))}
LAST_NORM_MACS = (
    64 * 8 * 8
)  # it runs as a convolution of its own; the benchmark counts convolutions and the linear layer


def graph(drawn: CellSpec, skeleton: Skeleton = SMALL, shape: tuple[int, int, int] = GREY, classes: int = 10) -> Graph:
    return lower_cell(drawn, skeleton, shape, classes)


def trained_values(op: Op) -> int:
    """Weights and biases in training, before batch norm is folded: it has two values a channel."""
    return op.weights + (2 * op.shape[0] if op.use_bn else op.biases)


def dead(drawn: CellSpec) -> list[str]:
    """The convolutions that are left out, for nothing passes them on its way from input to output."""
    alive = drawn.ways()
    return [name for edge, name in zip(EDGES, drawn.operations, strict=True) if edge not in alive and name in WEIGHTS]


def check(rows: list[dict[str, object]], table: str, shape: tuple[int, int, int], classes: int) -> None:
    for row in rows:
        drawn = CellSpec.parse(str(row["arch_str"]))
        missing = dead(drawn)
        scale = (shape[1] / 32) ** 2
        if not drawn.ways():
            with pytest.raises(ConstructibilityError, match="way from its input to its output"):
                graph(drawn)
            continue
        made = graph(drawn, BENCHMARK, shape, classes)
        values = sum(trained_values(op) for op in made.ops) + sum(WEIGHTS[name] for name in missing)
        macs = sum(op.macs for op in made.ops) - LAST_NORM_MACS * scale + sum(MACS[name] for name in missing) * scale
        assert (values, macs) == (row[f"params_{table}"], row[f"flops_{table}"]), drawn


def benchmark(table: str) -> list[dict[str, object]]:
    try:
        path = data_folder("nasbench201") / "nasbench201.parquet"
    except ConfigError as error:
        pytest.skip(f"the benchmark is not here: {error}")
    rows: list[dict[str, object]] = pq.read_table(
        path, columns=["arch_str", f"params_{table}", f"flops_{table}"]
    ).to_pylist()
    return rows


@pytest.mark.parametrize(
    ("table", "shape", "classes"),
    [("cifar10", COLOUR, 10), ("cifar100", COLOUR, 100), ("imagenet16", (3, 16, 16), 120)],
)
def test_weights_and_macs_are_those_of_the_benchmark(table: str, shape: tuple[int, int, int], classes: int) -> None:
    check(Random(0).sample(benchmark(table), 100), table, shape, classes)


@pytest.mark.slow
def test_weights_and_macs_are_those_of_the_benchmark_for_all_cells() -> None:
    rows = benchmark("cifar10")
    assert len(rows) == 15_625
    check(rows, "cifar10", COLOUR, 10)


def test_the_module_has_the_values_that_the_graph_counts() -> None:
    drawn = cell(e01="nor_conv_3x3", e03="skip_connect", e12="avg_pool_3x3", e13="nor_conv_1x1", e23="nor_conv_1x1")
    made = graph(drawn, BENCHMARK, COLOUR)
    with torch.device("meta"):
        network = Network(made)
    assert sum(p.numel() for p in network.parameters()) == sum(trained_values(op) for op in made.ops) == 372_346


def test_a_cell_of_an_identity_leaves_the_skeleton_alone() -> None:
    made = graph(cell(e03="skip_connect"))
    assert Counter(op.kind for op in made.ops) == {
        "conv": 7, "relu": 4, "avg_pool": 2, "add": 2, "norm": 1, "global_pool": 1, "linear": 1
    }  # fmt: skip
    assert [op.shape for op in made.ops if op.kind == "add"] == [(8, 4, 4), (16, 2, 2)]
    assert sum(trained_values(op) for op in graph(cell(e03="skip_connect"), BENCHMARK, COLOUR).ops) == 73_306


def test_a_node_is_the_sum_of_its_edges_and_a_convolution_reads_it_rectified() -> None:
    drawn = cell(e01="avg_pool_3x3", e02="nor_conv_1x1", e13="skip_connect", e23="nor_conv_3x3", e03="skip_connect")
    network = Network(graph(drawn)).eval()
    part = {name.removeprefix("cell_1__"): layer for name, layer in network.layers.items() if name.startswith("cell_1")}
    x = torch.randn(1, 4, 8, 8)
    one = torch.nn.functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    two = part["edge_0_2__conv"](x.relu())
    expected = x + one + part["edge_2_3__conv"](two.relu())
    with torch.no_grad():
        values = {"stem": network.layers["stem__conv"]}
        values["stem"].register_forward_hook(lambda *_: x)
        seen: list[torch.Tensor] = []
        network.layers["cell_1__edge_2_3__add"].register_forward_hook(lambda _, __, made: seen.append(made))
        network(torch.zeros(1, 1, 8, 8))
    assert torch.allclose(seen[0], expected, atol=1e-6)


def test_what_has_no_weights_is_computed_once() -> None:
    drawn = cell(e01="avg_pool_3x3", e02="avg_pool_3x3", e13="nor_conv_1x1", e23="nor_conv_3x3")
    mine = [op for op in graph(drawn).ops if op.name.startswith("cell_1.")]
    assert Counter(op.kind for op in mine) == {"avg_pool": 1, "relu": 1, "conv": 2, "add": 1}


def test_dead_edges_make_no_other_network_but_another_row_of_the_table() -> None:
    one, two = cell(e03="nor_conv_3x3"), cell(e03="nor_conv_3x3", e01="nor_conv_3x3", e23="skip_connect")
    networks, table = CellSpace(skeleton=SMALL, input_shape=GREY), CellSpace()
    assert networks.candidate(list(one.operations)).hash == networks.candidate(list(two.operations)).hash
    assert table.candidate(list(one.operations)).hash != table.candidate(list(two.operations)).hash


@pytest.mark.thorough
def test_only_networks_are_sampled_mutated_and_ranked() -> None:
    space, rng = CellSpace(skeleton=SMALL, input_shape=GREY), Random(0)
    parent = space.candidate(list(cell(e03="avg_pool_3x3").operations))
    for _ in range(100):
        child = space.mutate(parent, rng)
        assert child.cell is not None and child.cell.ways() and child.hash != parent.hash
        assert space.sample(rng).cell.ways()  # type: ignore[union-attr]
    assert space.compose(lambda *_: "none") is None
    assert all(found.ways() for found in space.by_capacity(rng))


def test_an_image_that_cannot_be_halved_twice_is_refused_by_name() -> None:
    with pytest.raises(ConstructibilityError, match=r"image\.width: must be a multiple of 4, found 10"):
        graph(cell(e03="skip_connect"), shape=(1, 8, 10))


def test_a_value_added_to_itself_is_read_once() -> None:
    made = graph(cell(e01="skip_connect", e13="skip_connect", e03="skip_connect"))
    doubled = [op for op in made.ops if op.name.startswith("cell_1.")]
    assert [(op.kind, len(set(op.inputs))) for op in doubled] == [("add", 1)]
    found = footprint(made, "int8")
    assert min_ram_bytes(made, "int8") <= found.ram_lower_bound_bytes
    assert found.ram_lower_bound_bytes >= 4 * 8 * 8 + 8 * 8 + 10  # the sum itself; input and output come on top


def test_messages_name_the_operators_of_a_cell() -> None:
    text = "/layers.cell_3__edge_0_1__conv/layers.cell_3__edge_0_1__conv.0/Conv_quant is too wide, see stem__conv_quant"
    assert spec_names(text) == "cell_3.edge_0_1.conv is too wide, see stem.conv"
