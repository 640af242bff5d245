"""What a network answered to the test examples: true against estimated values, or how anomaly scores lie."""

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from automcu_ray.core.learning import roc
from automcu_ray.records.manifest import NetworkManifest
from automcu_ray.reports.plots import CHOSEN, LIMIT, MUTED, REFUSED, TRAINED, new_axes, to_svg

MOST_POINTS = 500  # of a scatter plot
MOST_TARGETS = 4  # that are drawn
BINS = 40
_SIZE_IN = (4.4, 3.4)


class Figure(NamedTuple):
    """One figure of the page: SVG text and what is said below it."""

    svg: Markup
    caption: str


def figures(manifest: NetworkManifest, path: Path) -> list[Figure]:
    """Return the figures of the answers in a file beside a bundle; [] where it is not there or cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as file:
            answers, labels = np.asarray(file["answers"]), np.asarray(file["labels"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return []
    if len(answers) != len(labels) or not len(answers):
        return []
    if not all(array.dtype.kind in "fiu" and np.isfinite(array).all() for array in (answers, labels)):
        return []
    if manifest.learning.kind == "regression" and answers.shape == labels.shape == (
        len(labels),
        len(manifest.learning.targets),
    ):
        return list(_of_values(manifest, answers, labels))
    if manifest.anomaly is not None and answers.ndim == labels.ndim == 1:
        return list(_of_scores(manifest.anomaly.threshold, answers, labels))
    return []


def _of_values(
    manifest: NetworkManifest, answers: NDArray[np.float64], labels: NDArray[np.float64]
) -> Iterator[Figure]:
    for at, target in enumerate(manifest.learning.targets[:MOST_TARGETS]):
        found, true = answers[:MOST_POINTS, at], labels[:MOST_POINTS, at]
        figure, axes = new_axes("true", "estimated", _SIZE_IN)
        ends = [min(found.min(), true.min()), max(found.max(), true.max())]
        axes.plot(ends, ends, color=MUTED, linewidth=1)
        axes.scatter(true, found, s=12, color=TRAINED, alpha=0.6)
        shown = f"the first {len(true)} of {len(labels)}" if len(true) < len(labels) else f"all {len(labels)}"
        yield Figure(
            Markup(to_svg(figure, f"Estimated against true values of {len(true)} test examples.")),
            f"{target.name}: estimated against true, {shown} test examples.",
        )
        errors = answers[:, at] - labels[:, at]
        figure, axes = new_axes("estimated - true", "test examples", _SIZE_IN)
        axes.hist(errors, bins=_bins(errors), color=TRAINED)
        axes.axvline(0, color=MUTED, linewidth=1)
        axes.axvline(float(errors.mean()), color=CHOSEN, linestyle="--", label=f"mean {errors.mean():.3g}")
        yield Figure(
            Markup(to_svg(figure, f"How errors lie, on {len(errors)} test examples.")),
            f"{target.name}: how errors lie; half of them are below {np.median(np.abs(errors)):.3g}.",
        )


def _of_scores(threshold: float, scores: NDArray[np.float64], labels: NDArray[np.int64]) -> Iterator[Figure]:
    alarms, hits, thresholds = roc(scores, labels)
    at = max(0, int(np.searchsorted(-thresholds, -threshold, side="right")) - 1)
    figure, axes = new_axes("false alarms, share of normal examples", "anomalies found", _SIZE_IN)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=":")
    axes.plot(alarms, hits, color=CHOSEN)
    axes.scatter([alarms[at]], [hits[at]], color=LIMIT, zorder=3, label="threshold, by validation")
    yield Figure(
        Markup(to_svg(figure, f"Anomalies found against false alarms, on {len(scores)} test examples.")),
        "Anomalies found against false alarms for every threshold (ROC); the dotted line is chance.",
    )
    figure, axes = new_axes("anomaly score", "test examples", _SIZE_IN)
    parts = [scores[labels == 0], scores[labels == 1]]
    axes.hist(parts, bins=_bins(scores), color=[TRAINED, REFUSED], label=["normal", "anomalies"], stacked=True)
    axes.axvline(threshold, color=LIMIT, linestyle="--", label="threshold")
    yield Figure(
        Markup(to_svg(figure, f"How anomaly scores of {len(scores)} test examples lie.")),
        f"How anomaly scores lie; from {threshold:.4g} on an example is called an anomaly.",
    )


def _bins(values: NDArray[np.float64]) -> list[float]:
    """Return the edges of a histogram, also of values that are all equal."""
    low, high = float(values.min()), float(values.max())
    room = max(high - low, 1e-6 * max(1.0, abs(low), abs(high)))
    edges: list[float] = np.linspace(low, low + room, BINS + 1).tolist()
    return edges
