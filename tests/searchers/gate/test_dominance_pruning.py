"""What a refusal for want of bytes says about other networks, and how proposals make use of it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from automcu_ray.core.feasibility import Rung, Violation, over_limit
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from searchers.gate.dominance_pruning import DominancePruning
from searchers.gate.prefilter import Prefilter
from tests.searchers.conftest import refused, state

RAM = over_limit(Rung.LINK, "ram", "layer_1", need=30_000, limit=24_576)
OPERATOR = Violation(rung=Rung.CONVERT, resource="operator", message="not known")


def make(task: Task, *layers: dict[str, Any]) -> Candidate:
    return task.space.candidate(ArchitectureSpec.model_validate({"backbone": layers}))


def convs(task: Task, *widths: int, kernel: int = 3) -> Candidate:
    return make(task, *({"type": "conv", "out_channels": width, "kernel_size": kernel} for width in widths))


def after(task: Task, *records: Record) -> DominancePruning:
    pruning = DominancePruning(task)
    for record in records:
        pruning.learn(record)
    return pruning


def covered(pruning: DominancePruning, *candidates: Candidate) -> list[bool]:
    return [pruning.cover(pruning.task.graph(one.structure)) for one in candidates if one.structure is not None]


def test_a_network_that_is_nowhere_narrower_than_a_refused_one_is_covered(task: Task) -> None:
    pruning = after(task, refused(convs(task, 20, 40), RAM))
    others = [convs(task, 20, 40), convs(task, 21, 40), convs(task, 99, 99), convs(task, 19, 99)]
    assert covered(pruning, *others) == [True, True, True, False]


def test_another_kernel_depth_or_activation_is_another_question(task: Task) -> None:
    pruning = after(task, refused(convs(task, 20, 40), RAM))
    linear = {"type": "conv", "out_channels": 40, "activation": "none"}
    others = [convs(task, 20, 40, kernel=5), convs(task, 20, 40, 40), make(task, linear, linear)]
    assert covered(pruning, *others) == [False, False, False]


def test_a_wider_layer_that_loses_its_skip_is_not_covered(task: Task) -> None:
    """At 16 channels in and out the image before a block waits for the sum; at 17 out it does not."""
    conv, block = {"type": "conv", "out_channels": 16}, {"type": "mbconv", "expansion": 4}
    pruning = after(task, refused(make(task, conv, {**block, "out_channels": 16}), RAM))
    wider_block, wider_inside = {**block, "out_channels": 17}, {**block, "out_channels": 16, "expansion": 5}
    assert covered(pruning, make(task, conv, wider_block), make(task, conv, wider_inside)) == [False, True]


def test_only_bytes_are_a_matter_of_width(task: Task) -> None:
    narrow = convs(task, 20, 40)
    failed = refused(narrow, RAM).model_copy(update={"status": "failed"})
    assert covered(after(task, refused(narrow, OPERATOR), failed), narrow) == [False]


def test_of_many_refusals_the_narrowest_are_kept(task: Task) -> None:
    pruning = after(task, *(refused(convs(task, *widths), RAM) for widths in ((40, 40), (20, 50), (20, 40), (30, 90))))
    assert [len(kept) for kept in pruning.narrowest.values()] == [1]
    assert covered(pruning, convs(task, 20, 40), convs(task, 20, 39)) == [True, False]


def draw_from(*candidates: Candidate) -> Callable[[], Candidate]:
    """Draw from a list, the last one again and again."""
    drawn = iter(candidates)
    return lambda: next(drawn, candidates[-1])


@pytest.mark.parametrize(("check_bounds", "chosen"), [(True, 3), (False, 2)])
def test_the_first_that_is_new_and_may_fit_is_promising(task: Task, check_bounds: bool, chosen: int) -> None:
    drawn = [convs(task, 8), convs(task, 20, 41), convs(task, 480, 30), convs(task, 4), convs(task, 6)]
    now = state(task, known={drawn[0].hash: 1})
    now.prefilter.learn(refused(convs(task, 20, 40), RAM))
    assert now.promising(draw_from(*drawn), check_bounds=check_bounds) == drawn[chosen]


def test_where_all_are_hopeless_a_new_one_is_proposed_before_a_known_one(task: Task) -> None:
    large, known = convs(task, 480, 480), convs(task, 8)
    draw, now = draw_from(large, known), state(task, known={known.hash: 1})
    assert now.promising(draw) == large
    assert now.promising(draw) == known  # nothing else is left


def test_where_refused_networks_train_all_the_same_nothing_is_held_back(task: Task) -> None:
    large = convs(task, 480, 480)
    now = dataclasses.replace(state(task), prefilter=Prefilter(task, active=False))
    assert now.promising(draw_from(large, convs(task, 8))) == large
