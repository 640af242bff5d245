"""Metrics beside scikit-learn's, scores that rank in one direction, and what a threshold is."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.learning import METRICS, Learning, Target, roc, threshold

TARGETS = (
    Target(name="speed", mean=10.0, deviation=2.0, trivial_mae=1.5),
    Target(name="turn", mean=-1.0, deviation=0.5, trivial_mae=0.5),
)


@pytest.mark.parametrize("seed", range(4))
def test_metrics_are_those_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    anomalous = rng.integers(0, 2, 60)
    scores = np.round(rng.normal(size=60) + anomalous, 1)  # with ties
    assert METRICS["auc"].of(scores, anomalous) == pytest.approx(sklearn_metrics.roc_auc_score(anomalous, scores))
    partial = sklearn_metrics.roc_auc_score(anomalous, scores, max_fpr=0.1)
    assert METRICS["partial_auc"].of(scores, anomalous) == pytest.approx(partial)
    answers, labels = rng.integers(0, 4, (2, 60))
    f1 = sklearn_metrics.f1_score(labels, answers, average="macro")
    assert METRICS["macro_f1"].of(answers, labels) == pytest.approx(f1)
    true = rng.normal(size=(60, 2))
    found = true + rng.normal(size=(60, 2))
    assert METRICS["r2"].of(found, true) == pytest.approx(sklearn_metrics.r2_score(true, found))
    assert METRICS["mae"].of(found, true) == pytest.approx(sklearn_metrics.mean_absolute_error(true, found))


def test_values_are_answered_in_their_units_and_each_target_has_figures() -> None:
    learning = Learning.of("regression", targets=TARGETS)
    images = np.zeros((2, 1, 1, 4), np.uint8)
    answers = learning.answers(np.array([[0.0, 0.0], [1.0, -2.0]]), images)
    assert answers.tolist() == [[10.0, -1.0], [12.0, -2.0]]
    figures = learning.figures(answers, np.array([[11.0, -1.0], [12.0, -1.0]]))
    assert figures["mae"] == 0.5 and figures["mae speed"] == 0.5 and figures["mae turn"] == 0.5
    assert set(figures) == {"mae", "r2", "mae speed", "r2 speed", "mae turn", "r2 turn"}


def test_a_smaller_error_is_a_higher_score_and_the_median_is_worth_nothing() -> None:
    learning = Learning.of("regression", "mae", targets=TARGETS)  # trivial: (1.5 + 0.5) / 2
    assert learning.score_of(1.0) == 0.0 and learning.score_of(0.25) == 0.75 and learning.score_of(2.0) == -1.0
    assert learning.value_of(0.75) == 0.25 and learning.reported(0.75) == 0.25
    assert learning.written(0.75) == "0.2500" and learning.score_name == "score by mae"
    assert Learning().written(0.9123) == "91.23 %" and Learning().reported(0.9) is None


def test_an_anomaly_score_is_the_mean_squared_error_of_the_reconstruction() -> None:
    learning = Learning.of("anomaly")
    images = np.array([[[[128, 192]]], [[[0, 128]]]], np.uint8)  # 0 and 0.5; -1 and 0
    outputs = np.array([[0.0, 0.0], [-1.0, 0.0]])
    assert learning.answers(outputs, images).tolist() == [0.125, 0.0]
    assert learning.score(outputs, images, np.array([1, 0])) == 1.0


@pytest.mark.parametrize(
    ("kind", "metric", "loss", "said"),
    [
        ("regression", "accuracy", None, "metric=accuracy: the data are for regression, which has r2, mae"),
        ("classification", "auc", None, "metric=auc: the data are for classification, which has accuracy, macro_f1"),
        ("anomaly", None, "cross_entropy", "loss=cross_entropy: .* which has mse, huber"),
    ],
)
def test_a_metric_or_loss_of_another_kind_is_refused(kind: str, metric: str, loss: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Learning.of(kind, metric, loss)  # type: ignore[arg-type]


def test_a_threshold_lies_between_two_scores_and_parts_what_can_be_parted() -> None:
    scores, labels = np.array([0.1, 0.4, 0.2, 0.8, 0.9, 0.3]), np.array([0, 0, 0, 1, 1, 0])
    assert threshold(scores, labels) == pytest.approx(0.6)
    assert threshold(-scores, labels) <= -0.1, "where nothing can be told apart there is one, too"
    alarms, hits, thresholds = roc(scores, labels)
    assert (alarms[0], hits[0], thresholds[0], alarms[-1], hits[-1]) == (0, 0, np.inf, 1, 1)
