"""The figure of a sweep: every searcher has its name beside its line."""

import pytest

from automcu_ray.studies.anytime_curves import CANDIDATES, _apart, curves_figure
from automcu_ray.studies.sweep_statistics import Curve


def curve(*mean: float) -> Curve:
    at = tuple(float(number) for number in range(1, len(mean) + 1))
    return Curve(at, mean, tuple(value - 0.01 for value in mean), tuple(value + 0.01 for value in mean))


def test_nine_searchers_have_nine_names_and_nine_looks() -> None:
    drawn = curves_figure({f"searcher {number}": curve(0.5, 0.6, 0.7) for number in range(9)}, "seconds")
    assert all(drawn.count(f">searcher {number}<") == 1 for number in range(9))
    assert drawn.startswith("<svg") and "against seconds" in drawn and "http" not in drawn


def test_one_point_and_no_curve_can_be_drawn() -> None:
    assert "<svg" in curves_figure({"a": curve(0.5)}, "trained candidates")
    assert "nothing trained yet" in curves_figure({}, "trained candidates")


def test_what_is_spent_begins_at_nothing() -> None:
    late = Curve((40.0, 60.0), (0.5, 0.6), (0.4, 0.5), (0.6, 0.7))
    assert ">0<" in curves_figure({"a": late}, "seconds") and ">0<" not in curves_figure({"a": late}, CANDIDATES)


def test_names_keep_apart_in_the_order_of_their_lines() -> None:
    places = _apart([0.5, 0.9, 0.5], 0.1)  # 0.5 and 0.6 for the equal ones, then all down by a third of what that added
    assert places == pytest.approx([0.5 - 0.1 / 3, 0.9 - 0.1 / 3, 0.6 - 0.1 / 3])
