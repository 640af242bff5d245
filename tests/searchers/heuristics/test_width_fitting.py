"""Filling the budget: the widest network that is foreseen to fit, and what refusals teach about it.

By hand, two convolutions of w channels for 8x8 grey images and 10 classes, at int8: weights 9w + 9w^2 + 10w, biases
4 (2w + 10), first guess 2516 + 238 * 4 + 5 (2w + 10), together 9w^2 + 37w + 3558 bytes of Flash.
"""

import pytest

from automcu_ray.core.feasibility import Rung, Violation, over_limit
from automcu_ray.networks.layouts import Layout, read
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from automcu_ray.sizing.size_model import Error, Estimator
from searchers.gate.gate import Gate
from searchers.heuristics.width_fitting import WidthFitting
from tests.searchers.conftest import refused

PLAIN = Layout(family="conv", blocks=(1,))
LIMIT = 48 * 1024


def width(widths: WidthFitting, task: Task, estimator: Estimator | None = None) -> int:
    found = widths.widest(PLAIN, Gate(task, estimator=estimator))
    assert found is not None and found.spec is not None
    read_back = read(found.spec, task.space)
    assert read_back is not None and read_back[0] == PLAIN
    return read_back[1]


def refusal(widths: WidthFitting, at: int, violation: Violation, flash_bytes: int | None = None) -> Record:
    candidate = widths.candidate(PLAIN, at)
    assert candidate is not None
    return refused(candidate, violation, ram_bytes=flash_bytes and 11_084, flash_bytes=flash_bytes)


def test_the_widest_network_that_the_first_guess_allows(task: Task) -> None:
    assert 9 * 68**2 + 37 * 68 + 3558 <= LIMIT < 9 * 70**2 + 37 * 70 + 3558
    assert width(WidthFitting(task), task) == 68


def test_a_refusal_with_bytes_teaches_what_the_next_one_leaves_free(task: Task) -> None:
    widths = WidthFitting(task)
    widths.learn(refusal(widths, 68, over_limit(Rung.LINK, "flash", "", 52_000, LIMIT), flash_bytes=52_000))
    # 52,000 are 4,310 more than was foreseen: 47,100 with 64 channels, 49,514 with 66
    assert width(widths, task) == 64


def test_a_width_refused_by_less_than_a_step_is_not_asked_again(task: Task) -> None:
    widths = WidthFitting(task)
    assert width(widths, task) == 68
    widths.learn(refusal(widths, 68, over_limit(Rung.LINK, "flash", "", LIMIT + 1, LIMIT)))  # no total is known
    assert width(widths, task) == 66


def test_a_refusal_without_bytes_takes_a_quarter_of_the_width(task: Task) -> None:
    widths = WidthFitting(task)
    widths.learn(refusal(widths, 68, Violation(rung=Rung.CONVERT, resource="operator", message="no place found")))
    assert width(widths, task) == 50  # below 51


def test_refusals_end_with_nothing_left(task: Task) -> None:
    widths = WidthFitting(task)
    violation = Violation(rung=Rung.CONVERT, resource="operator", message="no")
    for _ in range(20):
        if widths.widest(PLAIN, Gate(task)) is None:
            return
        widths.learn(refusal(widths, width(widths, task), violation))
    pytest.fail("widths are asked without end")


def estimator(flash_beyond_bytes: float, flash_error_bytes: float) -> Estimator:
    exact, off = (Error(median_percent=0, p95_percent=0, p95_bytes=size) for size in (0, flash_error_bytes))
    return Estimator(
        precision="int8",
        verdicts=20,
        ram_beyond_bytes=0,
        flash_beyond_bytes=flash_beyond_bytes,
        flash_bytes_by_feature={"conv": 0, "global_pool": 0, "linear": 0},
        ram_error=exact,
        flash_error=off,
    )


@pytest.mark.parametrize(("error_bytes", "expected"), [(0, 70), (200, 68)])
def test_an_estimator_is_asked_first_and_its_error_stays_free(task: Task, error_bytes: int, expected: int) -> None:
    # 9w^2 + 27w + 40 of weights and biases, and 3,000: 49,030 bytes with 70 channels, 122 below the limit
    assert width(WidthFitting(task), task, estimator(3000, error_bytes)) == expected


def test_what_this_run_has_measured_comes_before_the_estimator(task: Task) -> None:
    widths = WidthFitting(task)
    widths.learn(refusal(widths, 68, over_limit(Rung.LINK, "flash", "", 52_000, LIMIT), flash_bytes=52_000))
    assert width(widths, task, estimator(0, 0)) == 64
