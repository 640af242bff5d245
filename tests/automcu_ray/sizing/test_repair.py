"""The smallest change of one field, with numbers worked out by hand, and on random specs too large for their board."""

from random import Random
from typing import Any

import pytest

from automcu_ray.core.feasibility import Change, Estimate, FeasibilityReport, Rung, Violation
from automcu_ray.networks.graph import ConstructibilityError, Graph
from automcu_ray.networks.search_space import Space
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.target import Constraints
from automcu_ray.problem.task import Task
from automcu_ray.sizing.footprint import check_bounds, footprint
from automcu_ray.sizing.repair import BUDGET_OPS, after_link, before_link, smallest_change

GREY = Space(input_shape=(1, 8, 8), num_classes=10)


def spec(*layers: dict[str, Any]) -> ArchitectureSpec:
    return ArchitectureSpec.model_validate({"backbone": list(layers)})


def changed(original: ArchitectureSpec, change: Change) -> ArchitectureSpec:
    """Return the spec as a reader of the change would write it."""
    layers = [{k: v for k, v in layer.items() if k != "in_channels"} for layer in original.compact()["backbone"]]
    layer, field = change.where.split(".")
    head = original.head.model_dump()
    (head if layer == "head" else layers[int(layer.removeprefix("layer_")) - 1])[field] = change.after
    return ArchitectureSpec.model_validate({"backbone": layers, "head": head})


def weights(graph: Graph) -> int:
    return sum(op.weights for op in graph.ops)


def within(task: Task, ram_bytes: int, flash_bytes: int) -> Task:
    limits = Constraints(ram_kb=ram_bytes / 1024, flash_kb=flash_bytes / 1024)
    return task.replace(constraints=limits)


def test_a_width_is_cut_to_the_last_that_fits() -> None:
    one = spec({"type": "conv", "out_channels": 64})  # 9 weights a channel, and 10 of the head: 64 * 19 = 1216
    change = smallest_change(one, GREY, lambda graph: weights(graph) <= 800)
    assert str(change) == "layer_1.out_channels 64 -> 42"  # 42 * 19 = 798


def test_the_smallest_share_of_a_field_wins_and_of_equal_ones_what_keeps_most_weights() -> None:
    # weights: 16 * 9, 16 * 16 * 9 and 16 * 10 = 2608; one channel less of layer_1 saves 9 + 144, of layer_2 144 + 10
    two = spec({"type": "conv", "out_channels": 16}, {"type": "conv", "out_channels": 16})
    for saved, change in ((154, "layer_2.out_channels 16 -> 15"), (1, "layer_1.out_channels 16 -> 15")):
        assert str(smallest_change(two, GREY, lambda graph, most=2608 - saved: weights(graph) <= most)) == change


@pytest.mark.parametrize(
    ("layer", "operator", "channels", "change"),
    [
        ({"type": "ghost", "out_channels": 12, "ratio": 3}, "primary", 3, "layer_2.out_channels 12 -> 9"),
        ({"type": "mbconv", "out_channels": 4, "expansion": 6}, "expand", 40, "layer_2.expansion 6 -> 5"),  # of 8
        ({"type": "mbconv", "out_channels": 4, "se_ratio": 0.5}, "squeeze", 14, "layer_2.se_ratio 0.5 -> 0.45"),
        ({"type": "bottleneck", "out_channels": 4, "expansion": 2}, "conv", 12, "layer_2.expansion 2 -> 1.5"),
        ({"type": "depthwise", "out_channels": 20}, "pointwise", 19, "layer_2.out_channels 20 -> 19"),
    ],
)
def test_every_kind_of_width_can_give(layer: dict[str, Any], operator: str, channels: int, change: str) -> None:
    def narrow(graph: Graph) -> bool:
        return all(op.shape[0] <= channels for op in graph.ops if op.name == f"layer_2.{operator}")

    assert str(smallest_change(spec({"type": "conv", "out_channels": 8}, layer), GREY, narrow)) == change


@pytest.mark.parametrize(
    ("layer", "change"),
    [
        ({"type": "conv", "out_channels": 1}, "layer_1.stride 1 -> 2"),
        ({"type": "residual", "out_channels": 1}, "layer_1.stride 1 -> 2"),
        ({"type": "max_pool", "kernel_size": 2}, "layer_1.kernel_size 2 -> 3"),
        ({"type": "avg_pool", "kernel_size": 2, "stride": 1}, "layer_1.kernel_size 2 -> 3"),
        ({"type": "avg_pool", "kernel_size": 7, "stride": 1}, "layer_1.kernel_size 7 -> 8"),  # as wide as the image
    ],
)
def test_strides_and_windows_grow(layer: dict[str, Any], change: str) -> None:
    one = spec(layer)
    before = GREY.graph(one).ops[0].shape[1]
    assert str(smallest_change(one, GREY, lambda graph: graph.ops[0].shape[1] < before)) == change


def test_a_ghost_may_make_more_of_its_maps_cheaply() -> None:
    ghost = spec({"type": "ghost", "out_channels": 4, "ratio": 2})
    change = smallest_change(ghost, GREY, lambda graph: [op.shape[0] for op in graph.ops[:3]] == [1, 3, 4])
    assert str(change) == "layer_1.ratio 2 -> 4"


def test_kernels_shrink() -> None:
    fits = [lambda graph: weights(graph) < 25 + 10, lambda graph: graph.ops[0].kernel < 3]
    found = [smallest_change(spec({"type": "conv", "out_channels": 1, "kernel_size": 5}), GREY, ask) for ask in fits]
    assert [str(change) for change in found] == ["layer_1.kernel_size 5 -> 3", "layer_1.kernel_size 5 -> 1"]


def test_widths_that_were_written_down_behind_the_change_follow_it() -> None:
    written = spec({"type": "conv", "out_channels": 16}, {"type": "conv", "in_channels": 16, "out_channels": 4})
    change = smallest_change(written, GREY, lambda graph: graph.ops[0].shape[0] <= 9)
    assert change == Change(where="layer_1.out_channels", before=16, after=9)


def test_where_no_single_field_helps_there_is_no_change() -> None:
    assert smallest_change(spec({"type": "conv", "out_channels": 8}), GREY, lambda graph: False) is None


def test_random_specs_too_large_pass_the_analytic_rung_with_their_fix(digits_task: Task) -> None:
    rng, fixed = Random(3), 0
    while fixed < 60:
        one = digits_task.space.sample(rng).spec
        assert one is not None
        least = footprint(digits_task.space.graph(one), "int8")
        share = rng.uniform(0.6, 0.99)
        task = within(digits_task, int(least.ram_lower_bound_bytes * share), int(least.flash_lower_bound_bytes * share))
        found = before_link(check_bounds(task.space.graph(one), task), one, task, check_bounds, None)
        for violation in found:
            if violation.fix is not None:
                after = {v.resource for v in check_bounds(task.space.graph(changed(one, violation.fix)), task)}
                cures_all = all(v.fix == violation.fix for v in found)
                assert violation.resource not in after and not (cures_all and after)
                fixed += 1


def test_a_fix_has_to_please_the_estimate_as_well(digits_task: Task) -> None:
    class Pessimist:
        """Expects 3,000 bytes of code, give or take 100."""

        def estimate(self, graph: Graph) -> Estimate:
            flash = footprint(graph, "int8").flash_lower_bound_bytes + 3_000
            return Estimate(ram_bytes=1, flash_bytes=flash, ram_error_bytes=0, flash_error_bytes=100)

    one, task = spec({"type": "conv", "out_channels": 400}), within(digits_task, 100_000, 8_000)
    refused = check_bounds(task.space.graph(one), task)  # 400 * (9 + 4 + 10) + 40 = 9240
    (without,) = before_link(refused, one, task, check_bounds, None)
    (informed,) = before_link(refused, one, task, check_bounds, Pessimist())  # type: ignore[arg-type]
    assert str(without.fix) == "layer_1.out_channels 400 -> 346"  # 346 * 23 + 40 = 7998
    assert str(informed.fix) == "layer_1.out_channels 400 -> 211"  # 211 * 23 + 40 + 3100 = 7993


def linked(task: Task, one: ArchitectureSpec, beyond: int, *violations: Violation) -> FeasibilityReport:
    """Return the report of a toolchain that adds so much to both bounds."""
    least = footprint(task.space.graph(one), "int8")
    return FeasibilityReport(
        feasible=False,
        backend="fake",
        rung=Rung.LINK,
        ram_bytes=least.ram_lower_bound_bytes + beyond,
        flash_bytes=least.flash_lower_bound_bytes + beyond,
        violations=violations,
    )


def over(resource: str, found: int | None, limit: int | None) -> Violation:
    return Violation(rung=Rung.LINK, resource=resource, message="", found_bytes=found, limit_bytes=limit)


def test_a_link_refusal_is_fixed_by_what_was_measured(digits_task: Task) -> None:
    one, task = spec({"type": "conv", "out_channels": 64}), within(digits_task, 100_000, 5_000)
    report = linked(task, one, 4_000, over("flash", 5_512, 5_000))  # 64 * 23 + 40 + 4000
    (violation,) = after_link(report, one, task, check_bounds).violations
    assert str(violation.fix) == "layer_1.out_channels 64 -> 41"  # 41 * 23 + 40 + 4000 = 4983


def test_what_is_not_about_bytes_has_no_fix(digits_task: Task) -> None:
    one = spec({"type": "conv", "out_channels": 64})
    report = linked(digits_task, one, 4_000, over("operator", None, None))
    assert after_link(report, one, digits_task, check_bounds) == report


def test_two_resources_that_no_one_change_cures_get_a_fix_each(digits_task: Task) -> None:
    # A wide start costs RAM, a wide end costs Flash: 1x64x8x8 bytes live at layer_1, 1024 * 14 bytes in the head.
    one = spec(
        {"type": "conv", "out_channels": 64},
        {"type": "max_pool", "kernel_size": 8},
        {"type": "pointwise", "out_channels": 1},
        {"type": "pointwise", "out_channels": 1000},
    )
    least = footprint(digits_task.space.graph(one), "int8")
    task = within(digits_task, least.ram_lower_bound_bytes - 1_000, least.flash_lower_bound_bytes - 5_000)
    ram, flash = before_link(check_bounds(task.space.graph(one), task), one, task, check_bounds, None)
    assert (ram.resource, ram.fix and ram.fix.where) == ("ram", "layer_1.out_channels")
    assert (flash.resource, flash.fix and flash.fix.where) == ("flash", "layer_4.out_channels")
    report = FeasibilityReport(feasible=False, backend="", rung=Rung.ANALYTIC, violations=(ram, flash, ram))
    assert report.fixes == (ram.fix, flash.fix)


def few_channels(graph: Graph, task: Task) -> tuple[Violation, ...]:
    """A backend's own limit."""
    return (over("channels", None, None),) if any(op.shape[0] > 50 for op in graph.ops) else ()


def test_another_backends_own_limits_count_before_the_link_and_after_it(digits_task: Task) -> None:
    one, task = spec({"type": "conv", "out_channels": 64}), within(digits_task, 100_000, 5_440)
    (before,) = before_link(few_channels(GREY.graph(one), digits_task), one, digits_task, few_channels, None)
    report = linked(task, one, 4_000, over("flash", 5_512, 5_440))  # 60 * 23 + 40 + 4000 = 5420 would fit
    (after,) = after_link(report, one, task, few_channels).violations
    assert str(before.fix) == str(after.fix) == "layer_1.out_channels 64 -> 50"


@pytest.mark.parametrize(
    ("layer", "hidden", "change"),
    [
        ({"type": "mbconv", "out_channels": 4, "expansion": 2}, 8, "layer_2.expansion 2 -> 1"),  # never below 1
        ({"type": "mbconv", "out_channels": 4, "expansion": 2, "se_ratio": 0.05}, 0, "layer_2.se_ratio 0.05 -> 0"),
        ({"type": "bottleneck", "out_channels": 4, "expansion": 1}, 1, "layer_2.expansion 1 -> 0.1"),
    ],
)
def test_expansion_and_gate_go_down_to_what_a_layer_allows(layer: dict[str, Any], hidden: int, change: str) -> None:
    inner = ("squeeze",) if hidden == 0 else ("expand", "depthwise", "reduce", "conv")

    def narrow(graph: Graph) -> bool:
        wide = [op for op in graph.ops if op.name in {f"layer_2.{n}" for n in inner} and op.shape[0] > hidden]
        return not wide and graph.ops[0].shape[0] == 8

    assert str(smallest_change(spec({"type": "conv", "out_channels": 8}, layer), GREY, narrow)) == change


def test_a_shown_change_alone_makes_the_shown_spec_fit(digits_task: Task) -> None:
    written = spec(
        {"type": "conv", "in_channels": 1, "out_channels": 32},
        {"type": "residual", "in_channels": 32, "out_channels": 32},
        {"type": "pointwise", "in_channels": 32, "out_channels": 64},
    )
    task = within(digits_task, 100_000, 15_000)
    shown = task.space.candidate(written).spec
    assert shown is not None
    change = smallest_change(shown, task.space, lambda graph: not check_bounds(graph, task))
    assert change is not None
    layer, field = change.where.split(".")
    layers = shown.compact()["backbone"]
    layers[int(layer.removeprefix("layer_")) - 1][field] = change.after  # nothing else is touched
    assert check_bounds(task.space.graph(spec(*layers)), task) == ()
    with pytest.raises(ConstructibilityError, match="in_channels"):  # it is still checked
        task.space.candidate(spec({"type": "conv", "in_channels": 3, "out_channels": 32}))


def test_large_networks_exhaust_a_budget_and_the_largest_layers_are_tried_first() -> None:
    colour = Space(input_shape=(3, 32, 32), num_classes=10)
    looked_at: list[int] = []

    def fits(graph: Graph) -> bool:
        looked_at.append(len(graph.ops))
        return graph.ops[30].shape[0] <= 100  # of layer_31

    layers = [{"type": "conv", "out_channels": 8} for _ in range(40)]
    layers[30] = {"type": "conv", "out_channels": 256}
    wide = spec(*layers)
    assert str(smallest_change(wide, colour, fits)) == "layer_31.out_channels 256 -> 100"
    assert sum(looked_at) <= BUDGET_OPS + len(wide.backbone) + 2
    assert smallest_change(wide, colour, lambda graph: False, budget_ops=1000) is None


def test_what_was_found_when_the_budget_ends_fits(digits_task: Task) -> None:
    one = spec({"type": "conv", "out_channels": 64})
    for budget in range(1, 800, 53):
        change = smallest_change(one, GREY, lambda graph: weights(graph) <= 800, budget_ops=budget)
        assert change is None or weights(GREY.graph(changed(one, change))) <= 800
