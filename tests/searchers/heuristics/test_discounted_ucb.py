"""Who comes next, by figures worked out by hand."""

import math

import pytest

from searchers.heuristics.discounted_ucb import Bandit


def bandit(*arms: str, discount: float = 0.5, exploration: float = 0.0) -> Bandit:
    return Bandit(arms, discount=discount, exploration=exploration)


def test_whoever_was_never_asked_comes_first_and_in_order() -> None:
    found = bandit("a", "b", "c")
    assert found.ranking({}) == ["a", "b", "c"]
    found.learn("a", gain=1.0, cost=1.0)
    assert found.ranking({}) == ["b", "c", "a"]
    assert found.ranking({"b": 1}) == ["c", "a", "b"]  # asked already: no gain yet


def test_gain_counts_per_cost() -> None:
    found = bandit("dear", "cheap")
    found.learn("dear", gain=0.3, cost=30.0)
    found.learn("cheap", gain=0.1, cost=2.0)
    assert found.arms["dear"].rate == pytest.approx(0.01)
    assert found.arms["cheap"].rate == pytest.approx(0.05)
    assert found.ranking({}) == ["cheap", "dear"]


def test_old_gains_are_forgotten() -> None:
    found = bandit("once", "now")
    found.learn("now", gain=0.0, cost=1.0)
    found.learn("once", gain=0.8, cost=1.0)
    for _ in range(3):
        found.learn("once", gain=0.0, cost=1.0)
    # 0.8 / 2**3 over 1 + 1/2 + 1/4 + 1/8
    assert found.arms["once"].rate == pytest.approx(0.1 / 1.875)
    assert found.scale == pytest.approx(0.8 * math.sqrt(0.5) ** 3)
    found.learn("now", gain=0.2, cost=1.0)
    assert found.ranking({}) == ["now", "once"]


def test_index_is_share_of_scale_and_exploration() -> None:
    found = bandit("good", "rare", exploration=0.5)
    found.learn("rare", gain=0.0, cost=1.0)
    found.learn("good", gain=0.4, cost=1.0)
    # pulls: good 1, rare 1/2; ln(1.5) = 0.405: 1 + 0.5 * 0.637 against 0 + 0.5 * 0.901
    assert found.ranking({}) == ["good", "rare"]
    assert found.ranking({"good": 50}) == ["rare", "good"]  # ln(51.5) = 3.94: 1 + 0.5 * 0.278 against 0.5 * 2.81


def test_without_any_gain_all_are_asked_alike() -> None:
    found = bandit("a", "b", "c", discount=0.9, exploration=0.2)
    asked = []
    for _ in range(30):
        asked.append(found.ranking({})[0])
        found.learn(asked[-1], gain=0.0, cost=1.0)
    assert [asked.count(name) for name in "abc"] == [10, 10, 10]
