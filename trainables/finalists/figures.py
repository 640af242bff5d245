"""What the test set says of a network that tells no classes apart, or is judged by another metric than accuracy."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automcu_ray.core.learning import Learning, threshold
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.records.manifest import AnomalyFigures
from trainables.datasets.base import Split

ANSWERS = "{}_answers.npz"  # beside a bundle: what a report draws


def figures(
    learning: Learning, deployed: DeployedNetwork, as_float: DeployedNetwork, train: Split, val: Split, test: Split
) -> tuple[dict[str, Any], NDArray[Any]]:
    """Return fields of the manifest, and the answers to all test examples; the threshold comes from validation."""
    answers = learning.answers(deployed.values(test.images), test.images)
    in_float = learning.answers(as_float.values(test.images), test.images)
    found: dict[str, Any] = {
        "test_figures": learning.figures(answers, test.labels),
        "test_figures_float": learning.figures(in_float, test.labels),
        "trivial_figures": learning.figures(trivial_answers(learning, train, test), test.labels),
    }
    if learning.kind == "anomaly":
        least = threshold(learning.answers(deployed.values(val.images), val.images), val.labels)
        called, anomalous = answers >= least, test.labels == 1
        found["anomaly"] = AnomalyFigures(
            threshold=least,
            found=float(called[anomalous].mean()),
            false_alarms=float(called[~anomalous].mean()),
            anomalies=int(anomalous.sum()),
            normal=int((~anomalous).sum()),
        )
    return found, answers


def trivial_answers(learning: Learning, train: Split, test: Split) -> NDArray[Any]:
    """Return the answers of who knows the training examples' mean alone, or their most frequent class."""
    if learning.kind == "classification":
        return np.full(len(test), np.bincount(train.labels).argmax())
    if learning.kind == "regression":
        return np.broadcast_to(train.labels.mean(axis=0, dtype=np.float64), test.labels.shape)
    mean = ((train.images.mean(axis=0, dtype=np.float64) - 128) / 128).reshape(1, -1)
    return learning.answers(np.broadcast_to(mean, (len(test), mean.size)), test.images)


def save_answers(bundle: Path, answers: NDArray[Any], labels: NDArray[Any]) -> None:
    """Write all answers and labels beside a bundle."""
    np.savez_compressed(bundle.with_name(ANSWERS.format(bundle.name)), answers=answers, labels=labels)
