"""Rank correlations: equal to scipy's own, intervals that hold the value, and what a choice by rank costs."""

import numpy as np
import pytest
from scipy import stats

from automcu_ray.records.rank_correlation import (
    ceiling,
    kendall,
    lost_by_choice,
    repeat_deviation,
    spearman,
    sum_of_ranks,
)

# Ranks 1 2 3 4 against 1 3 2 4: the differences are 0 1 1 0, so Spearman's is 1 - 6 * 2 / (4 * 15) = 0.8;
# five of six pairs agree, so Kendall's is (5 - 1) / 6.
OURS, THEIRS = [0.1, 0.2, 0.3, 0.4], [1.0, 5.0, 2.0, 9.0]


def test_correlations_worked_out_by_hand() -> None:
    rho, tau = spearman(OURS, THEIRS), kendall(OURS, THEIRS)
    assert rho is not None and tau is not None
    assert (rho.value, tau.value) == (pytest.approx(0.8), pytest.approx(4 / 6))


def test_ties_and_failed_networks_are_ranked_as_scipy_ranks_them() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.integers(0, 6, 20).astype(float), rng.integers(0, 6, 20).astype(float)
    ours[3] = -np.inf
    rho, tau = spearman(list(ours), list(theirs)), kendall(list(ours), list(theirs))
    assert rho is not None and rho.value == pytest.approx(stats.spearmanr(ours, theirs).statistic)
    assert tau is not None and tau.value == pytest.approx(stats.kendalltau(ours, theirs).statistic)


def test_an_interval_holds_the_value_and_narrows_with_more_networks() -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(size=80)
    noisy = truth + rng.normal(size=80)
    few, many = spearman(list(noisy[:16]), list(truth[:16])), spearman(list(noisy), list(truth))
    assert few is not None and many is not None
    assert few.low < few.value < few.high and many.low < many.value < many.high
    assert many.high - many.low < 0.7 * (few.high - few.low)
    assert spearman(list(noisy), list(truth)) == many


def test_a_score_that_is_the_same_for_all_has_no_correlation() -> None:
    assert spearman([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None


def test_ranks_add_up() -> None:
    assert sum_of_ranks([0.5, 0.9, 0.7], [300, 100, 100]) == [1 + 3, 3 + 1.5, 2 + 1.5]


def test_a_choice_costs_what_the_best_of_all_has_more() -> None:
    assert lost_by_choice([3, 2, 1], [0.5, 0.6, 0.9], 2) == pytest.approx(0.3)
    assert lost_by_choice([3, 2, 1], [0.5, 0.6, 0.9], 3) == 0


def test_noise_bounds_what_a_perfect_score_can_reach() -> None:
    assert repeat_deviation([1.0, 2.0], [1.2, 1.8]) == pytest.approx(np.sqrt(0.04 / 2))
    assert ceiling([1.0, 2.0, 3.0], 0.6) == pytest.approx(0.8)  # the variance is 1, of which 0.36 is noise
    assert ceiling([1.0, 2.0, 3.0], 2.0) == 0
