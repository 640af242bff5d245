"""What a refusal for want of bytes says about other networks, and how proposals make use of it."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from automcu_ray.feasibility import FeasibilityReport, Rung, Violation, over_limit
from automcu_ray.record import Candidate, Record
from automcu_ray.spec import ArchitectureSpec
from automcu_ray.task import Task
from searchers.random import RandomSearch
from searchers.refusals import Refusals

RAM = over_limit(Rung.LINK, "ram", "layer_1", need=30_000, limit=24_576)
OPERATOR = Violation(rung=Rung.CONVERT, resource="operator", message="not known")


def make(task: Task, *layers: dict[str, Any]) -> Candidate:
    return task.space.candidate(ArchitectureSpec.model_validate({"backbone": layers}))


def convs(task: Task, *widths: int, kernel: int = 3) -> Candidate:
    return make(task, *({"type": "conv", "out_channels": width, "kernel_size": kernel} for width in widths))


def refused(candidate: Candidate, violation: Violation = RAM) -> Record:
    report = FeasibilityReport(feasible=False, backend="x", rung=violation.rung, violations=(violation,))
    return Record(candidate=candidate, status="infeasible", reason="x", feasibility=report)


def after(task: Task, *records: Record) -> Refusals:
    refusals = Refusals(task)
    for record in records:
        refusals.learn(record)
    return refusals


def covered(refusals: Refusals, *candidates: Candidate) -> list[bool]:
    return [refusals.cover(refusals.task.graph(one.structure)) for one in candidates if one.structure is not None]


def test_a_network_that_is_nowhere_narrower_than_a_refused_one_is_covered(task: Task) -> None:
    refusals = after(task, refused(convs(task, 20, 40)))
    others = [convs(task, 20, 40), convs(task, 21, 40), convs(task, 99, 99), convs(task, 19, 99)]
    assert covered(refusals, *others) == [True, True, True, False]


def test_another_kernel_depth_or_activation_is_another_question(task: Task) -> None:
    refusals = after(task, refused(convs(task, 20, 40)))
    linear = {"type": "conv", "out_channels": 40, "activation": "none"}
    others = [convs(task, 20, 40, kernel=5), convs(task, 20, 40, 40), make(task, linear, linear)]
    assert covered(refusals, *others) == [False, False, False]


def test_a_wider_layer_that_loses_its_skip_is_not_covered(task: Task) -> None:
    """At 16 channels in and out the image before a block waits for the sum; at 17 out it does not."""
    conv, block = {"type": "conv", "out_channels": 16}, {"type": "mbconv", "expansion": 4}
    refusals = after(task, refused(make(task, conv, {**block, "out_channels": 16})))
    wider_block, wider_inside = {**block, "out_channels": 17}, {**block, "out_channels": 16, "expansion": 5}
    assert covered(refusals, make(task, conv, wider_block), make(task, conv, wider_inside)) == [False, True]


def test_only_bytes_are_a_matter_of_width(task: Task) -> None:
    narrow = convs(task, 20, 40)
    failed = refused(narrow).model_copy(update={"status": "failed"})
    assert covered(after(task, refused(narrow, OPERATOR), failed), narrow) == [False]


def test_of_many_refusals_the_narrowest_are_kept(task: Task) -> None:
    refusals = after(task, *(refused(convs(task, *widths)) for widths in ((40, 40), (20, 50), (20, 40), (30, 90))))
    assert [len(kept) for kept in refusals.narrowest.values()] == [1]
    assert covered(refusals, convs(task, 20, 40), convs(task, 20, 39)) == [True, False]


class Listed(RandomSearch):
    """Draws from a list, the last one again and again."""

    def __init__(self, task: Task, candidates: Iterable[Candidate]) -> None:
        super().__init__(task)
        self.drawn: Iterator[Candidate] = iter(list(candidates))
        self.last: Candidate | None = None

    def draw(self) -> Candidate:
        self.last = next(self.drawn, self.last)
        assert self.last is not None
        return self.last


@pytest.mark.parametrize(("foresee", "chosen"), [(True, 3), (False, 2)])
def test_the_first_that_is_new_and_may_fit_is_promising(task: Task, foresee: bool, chosen: int) -> None:
    drawn = [convs(task, 8), convs(task, 20, 41), convs(task, 480, 30), convs(task, 4), convs(task, 6)]
    searcher = Listed(task, drawn)
    searcher.seen[drawn[0].hash] = 1
    searcher._learn(refused(convs(task, 20, 40)))
    assert searcher.promising(searcher.draw, foresee=foresee) == drawn[chosen]


def test_where_all_are_hopeless_a_new_one_is_proposed_before_a_known_one(task: Task) -> None:
    large, known = convs(task, 480, 480), convs(task, 8)
    searcher = Listed(task, [large, known])
    searcher.seen[known.hash] = 1
    assert searcher.promising(searcher.draw) == large
    assert searcher.promising(searcher.draw) == known  # nothing else is left


def test_where_refused_networks_train_all_the_same_nothing_is_held_back(task: Task) -> None:
    large = convs(task, 480, 480)
    searcher = Listed(task, [large, convs(task, 8)])
    searcher.trains_refused = True
    assert searcher.promising(searcher.draw) == large
