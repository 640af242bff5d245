"""Counts worked out by hand, and what measurements teach."""

from random import Random
from statistics import median

import pytest

from automcu_ray.networks.graph import Graph, GraphBuilder
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.config_files import names
from automcu_ray.sizing.instruction_features import features
from automcu_ray.sizing.instruction_model import InstructionModel, fit, shipped


def graph(*channels: int) -> Graph:
    builder, last = GraphBuilder((3, 8, 8)), -1
    for number, count in enumerate(channels, start=1):
        builder.layer = f"layer_{number}"
        last = builder.conv("conv", last, count, 3)
    last = builder.global_pool(last)
    return Graph((3, 8, 8), (*builder.ops[:last], builder.ops[last]))


def test_four_pixels_at_a_time_where_the_arena_has_room_and_windows_where_it_has_not() -> None:
    # Live at the first: 16 * 64 values; at the second 24 * 64 more, and 144 + 3 of scratch. Packing four pixels takes
    # 8 * 28 + 3 (3 * 9 = 27 values, padded to a multiple of 4) and 8 * 144 + 3: the first has room for it.
    first, second, pool = features(graph(16, 24), "cortex-m4f")
    assert first["multiply: products alone"] == 16 * 16 * 28  # 8 rows of two blocks of four
    assert first["multiply: stores alone"] == 16 * 16 and not first["multiply: ragged stores alone"]
    assert first["threes: stride 1 rows at edges alone"] == 16 * 9  # each block reaches beyond a row of eight
    assert second["products: fours by four alone"] == 64 * 6 * 36
    assert second["narrow: larger values alone"] == 64 * 144
    assert second["narrow: larger values inside alone"] == 16 * 22 * 22  # two of 24 are outside, down and across
    assert pool["global_pool: values alone"] == 24 * 64


def test_two_layers_of_one_window_share_a_function_that_knows_it_and_one_that_does_not() -> None:
    _, one, two, _ = features(graph(16, 24, 24), "cortex-m4f")
    assert one["narrow: layers alike"] == two["narrow: layers alike"] == 1
    assert one["products: vectors"] == two["products: vectors"] == 64


def test_layers_whose_costs_no_shape_tells_do_not_teach_the_others(digits_task: Task) -> None:
    graphs, model = random_graphs(digits_task, 80), shipped("cortex-m4f")
    counts = [[round(cost) for cost in model.by_operator(one)] for one in graphs]
    rng = Random(0)
    strange = [[5 * cost if rng.random() < 0.05 else cost for cost in one] for one in counts]
    found = fit(graphs[:60], strange[:60], "cortex-m4f")
    off = [abs(found.estimate(one) / sum(truth) - 1) for one, truth in zip(graphs[60:], counts[60:], strict=True)]
    assert median(off) < 0.04


def test_a_depthwise_layer_of_stride_two_reads_its_rows_where_they_lie() -> None:
    builder = GraphBuilder((3, 8, 24))
    builder.conv("conv", -1, 3, 3, stride=2, groups=3)
    found = features(Graph((3, 8, 24), tuple(builder.ops)), "cortex-m33f")[0]
    counts = {"padded blocks": 12, "blocks": 24, "rows": 12}  # of three blocks a row the first begins in the padding
    assert {name: found[f"apart: {name} alone"] for name in counts} == counts


def test_every_target_has_a_model_and_a_wider_network_costs_more(digits_task: Task) -> None:
    for core in {compose({"target": name}).target.core for name in names("target")}:
        assert 0 < shipped(core).estimate(graph(8, 16)) < shipped(core).estimate(graph(16, 32))


def random_graphs(task: Task, count: int) -> list[Graph]:
    rng = Random(1)
    specs = [task.space.sample(rng).spec for _ in range(count)]
    return [task.space.graph(spec) for spec in specs if spec is not None]


def test_a_fit_finds_the_costs_that_made_the_counts(digits_task: Task) -> None:
    graphs, model = random_graphs(digits_task, 120), shipped("cortex-m4f")
    counts = [[round(cost) for cost in model.by_operator(one)] for one in graphs]
    found = fit(graphs[:100], counts[:100], "cortex-m4f")
    off = [abs(found.estimate(one) / sum(truth) - 1) for one, truth in zip(graphs[100:], counts[100:], strict=True)]
    assert median(off) < 0.01


def test_whole_counts_correct_what_ships(digits_task: Task) -> None:
    graphs, model = random_graphs(digits_task, 60), shipped("cortex-m4f")
    slower = InstructionModel(core="cortex-m4f", costs={name: 1.3 * cost for name, cost in model.costs.items()})
    taught = model.taught(graphs[:40], [slower.estimate(one) for one in graphs[:40]])
    assert median(abs(taught.estimate(one) / slower.estimate(one) - 1) for one in graphs[40:]) < 0.08
    assert model.scaled_to(graphs[0], 1000).estimate(graphs[0]) == pytest.approx(1000, abs=1)
