"""What a network learns, and by which metric networks are judged: from outputs and labels to one number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.models import FrozenModel

if TYPE_CHECKING:  # configurations name metrics, and a command starts without numpy
    import numpy as np
    from numpy.typing import NDArray

Kind = Literal["classification", "regression", "anomaly"]
MetricName = Literal["accuracy", "macro_f1", "r2", "mae", "auc", "partial_auc"]
Loss = Literal["cross_entropy", "mse", "huber"]
PARTIAL_FALSE_ALARMS = 0.1  # the share of false alarms up to which `partial_auc` counts, as in DCASE and MLPerf Tiny
_LOSSES: dict[Kind, tuple[Loss, ...]] = {
    "classification": ("cross_entropy",),
    "regression": ("mse", "huber"),
    "anomaly": ("mse", "huber"),
}


class Target(FrozenModel):
    """A quantity that a network estimates, in its own unit; the figures are of the training examples.

    A network's output is `(value - mean) / deviation`. `trivial_mae` is the mean absolute error of answering the
    median, whatever the input.
    """

    name: str
    mean: float
    deviation: float
    trivial_mae: float


class Metric(NamedTuple):
    """A way to judge answers: which kind of task it is for, which direction is better, how it is computed.

    `of` takes answers (N, ...) as `Learning.answers` gives them, and labels (N, ...).
    """

    kind: Kind
    more_is_better: bool
    of: Callable[[NDArray[Any], NDArray[Any]], float]


class Learning(FrozenModel):
    """What a network learns, the loss of its training, and the metric that ranks networks.

    Classification: labels (N,) are classes, outputs (N, classes) logits. Regression: labels (N, targets) in their own
    units, outputs standardised. Anomaly detection: outputs are the input again, labels (N,) are 1 for anomalies, of
    which training has none; the answer is the anomaly score, the mean squared error of the reconstruction.

    Networks are ranked by a `score`, more is better and 1 is perfect: the metric itself where more is better; for `mae`
    it is 1 - MAE / trivial MAE, 0 where a network is no better than answering the median.
    """

    kind: Kind = "classification"
    metric: MetricName = "accuracy"
    loss: Loss = "cross_entropy"
    targets: tuple[Target, ...] = ()

    @classmethod
    def of(
        cls, kind: Kind, metric: MetricName | None = None, loss: Loss | None = None, targets: tuple[Target, ...] = ()
    ) -> Learning:
        """Return what is learnt from data of a kind; None is the first metric, or loss, that the kind has.

        Raises:
            ConfigError: a metric or loss of another kind.
        """
        known = [name for name, one in METRICS.items() if one.kind == kind]
        for key, found, allowed in (("metric", metric, known), ("loss", loss, _LOSSES[kind])):
            if found is not None and found not in allowed:
                raise ConfigError(f"{key}={found}: the data are for {kind}, which has {', '.join(allowed)}.")
        made: dict[str, Any] = {"metric": metric or known[0], "loss": loss or _LOSSES[kind][0]}
        return cls(kind=kind, targets=targets, **made)

    def answers(self, outputs: NDArray[Any], images: NDArray[np.uint8]) -> NDArray[Any]:
        """Return classes (N,), values in their units (N, targets), or anomaly scores (N,).

        Args:
            outputs: real values (N, outputs), as a float network gives them.
            images: what went in, (N, channels, height, width).
        """
        import numpy as np

        if self.kind == "classification":
            classes: NDArray[Any] = outputs.argmax(axis=1)
            return classes
        if self.kind == "regression":
            mean, deviation = (np.array([getattr(one, key) for one in self.targets]) for key in ("mean", "deviation"))
            values: NDArray[Any] = outputs.astype(np.float64) * deviation + mean
            return values
        wanted = (images.reshape(len(images), -1).astype(np.float32) - 128) / 128
        scores: NDArray[Any] = np.square(outputs.astype(np.float32) - wanted).mean(axis=1, dtype=np.float64)
        return scores

    def score(self, outputs: NDArray[Any], images: NDArray[np.uint8], labels: NDArray[Any]) -> float:
        """Return what networks are ranked by, of real outputs (N, outputs) for images (N, ...) with labels (N, ...)."""
        return self.score_of(METRICS[self.metric].of(self.answers(outputs, images), labels))

    def figures(self, answers: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
        """Return all metrics of this kind of task by name, in their own units; of each target too, where several."""
        mine: dict[str, Metric] = {name: one for name, one in METRICS.items() if one.kind == self.kind}
        found = {name: one.of(answers, labels) for name, one in mine.items()}
        for at, target in enumerate(self.targets if len(self.targets) > 1 else ()):
            column = slice(at, at + 1)
            found |= {
                f"{name} {target.name}": one.of(answers[:, column], labels[:, column]) for name, one in mine.items()
            }
        return found

    @property
    def score_name(self) -> str:
        """What a score is called on an axis: the metric's name, where the score is the metric."""
        return self.metric if METRICS[self.metric].more_is_better else f"score by {self.metric}"

    def written(self, score: float | None) -> str:
        """Return the metric's value of a score as people read it: an accuracy in percent, others as they are."""
        if score is None or not math.isfinite(score):
            return "not measured"
        return f"{score * 100:.2f} %" if self.metric == "accuracy" else f"{self.value_of(score):.4f}"

    @property
    def trivial_mae(self) -> float:
        """The mean absolute error of answering the median, mean over the targets."""
        return sum(target.trivial_mae for target in self.targets) / len(self.targets) if self.targets else 1.0

    def score_of(self, value: float) -> float:
        """Return the score that a value of the metric is worth."""
        return value if METRICS[self.metric].more_is_better else 1 - value / self.trivial_mae

    def value_of(self, score: float) -> float:
        """Return the metric's value, in its own unit, that a score stands for."""
        return score if METRICS[self.metric].more_is_better else (1 - score) * self.trivial_mae

    def reported(self, score: float) -> float | None:
        """Return the metric's value of a score where it is another number; None where the score says it itself."""
        return None if METRICS[self.metric].more_is_better else self.value_of(score)


def roc(scores: NDArray[Any], labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return shares of false alarms and of anomalies found, from (0, 0) to (1, 1), and the threshold of each point.

    An example is called an anomaly whose score is the threshold or more; the first threshold is infinite.
    """
    import numpy as np

    order = np.argsort(-scores, kind="stable")
    ranked, found = scores[order], labels[order] == 1
    last = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)  # of equal scores
    hits, alarms = np.cumsum(found)[last], np.cumsum(~found)[last]
    none = np.zeros(1)
    return (
        np.concatenate([none, alarms / max(1, alarms[-1])]),
        np.concatenate([none, hits / max(1, hits[-1])]),
        np.concatenate([none + np.inf, ranked[last]]),
    )


def threshold(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the score from which on an example is called an anomaly: the largest difference of both shares of `roc`.

    It lies in the middle between two scores, so that rounding moves no example over it. Source: Youden 1950,
    doi:10.1002/1097-0142(1950)3:1<32::AID-CNCR2820030106>3.0.CO;2-3.
    """
    import numpy as np

    alarms, hits, thresholds = roc(scores, labels)
    at = max(1, int(np.argmax(hits - alarms)))
    below = thresholds[at + 1] if at + 1 < len(thresholds) else thresholds[at]
    return float((thresholds[at] + below) / 2)


def _macro_f1(classes: NDArray[Any], labels: NDArray[Any]) -> float:
    import numpy as np

    found = []
    for one in np.union1d(classes, labels):
        both = np.count_nonzero((classes == one) & (labels == one))
        found.append(2 * both / (np.count_nonzero(classes == one) + np.count_nonzero(labels == one)))
    return float(np.mean(found))


def _r2(values: NDArray[Any], labels: NDArray[Any]) -> float:
    import numpy as np

    missed = np.square(labels - values).sum(axis=0, dtype=np.float64)
    spread = np.square(labels - labels.mean(axis=0, dtype=np.float64)).sum(axis=0, dtype=np.float64)
    return float(np.mean(1 - missed / np.maximum(spread, 1e-12)))


def _area(scores: NDArray[Any], labels: NDArray[Any], until: float = 1.0) -> float:
    """Return the area below the ROC curve up to a share of false alarms, standardised so that chance gives 0.5.

    Source: McClish 1989, doi:10.1177/0272989X8900900307, as scikit-learn's roc_auc_score(max_fpr=...).
    """
    import numpy as np

    alarms, hits, _ = roc(scores, labels)
    inside = alarms < until
    x = np.append(alarms[inside], until)
    y = np.append(hits[inside], np.interp(until, alarms, hits) if until < 1 else 1.0)
    area, chance = float(np.trapezoid(y, x)), until * until / 2
    return 0.5 * (1 + (area - chance) / (until - chance))


METRICS: dict[MetricName, Metric] = {
    "accuracy": Metric("classification", True, lambda classes, labels: float((classes == labels).mean())),
    "macro_f1": Metric("classification", True, _macro_f1),
    "r2": Metric("regression", True, _r2),
    "mae": Metric("regression", False, lambda values, labels: float(abs(values - labels).mean(dtype="float64"))),
    "auc": Metric("anomaly", True, _area),
    "partial_auc": Metric("anomaly", True, lambda scores, labels: _area(scores, labels, PARTIAL_FALSE_ALARMS)),
}
