"""What a report draws of the answers to the test set, and what damaged files leave."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from automcu_ray.core.learning import Learning, Target
from automcu_ray.records.manifest import AnomalyFigures, NetworkManifest
from automcu_ray.reports.answer_figures import MOST_POINTS, figures
from tests.automcu_ray.records.test_events import NETWORK

HOSTILE = "<script>alert(1)</script>"
VALUES = Learning(
    kind="regression", metric="mae", loss="mse",
    targets=(Target(name=HOSTILE, mean=0, deviation=1, trivial_mae=1),),
)  # fmt: skip
ANOMALY = {
    "learning": Learning.of("anomaly"),
    "anomaly": AnomalyFigures(threshold=0.5, found=0.9, false_alarms=0.1, anomalies=3, normal=4),
}


def manifest(**about: Any) -> NetworkManifest:
    return NetworkManifest.model_validate({**NETWORK, "test_accuracy": None, "test_accuracy_float": None, **about})


def test_values_are_drawn_against_the_truth_with_their_errors(tmp_path: Path) -> None:
    labels = np.random.default_rng(0).normal(size=(MOST_POINTS + 9, 1))
    np.savez(tmp_path / "a.npz", answers=labels + 0.1, labels=labels)
    scatter, errors = figures(manifest(learning=VALUES), tmp_path / "a.npz")
    assert f"the first {MOST_POINTS} of {MOST_POINTS + 9} test examples" in scatter.caption
    assert "half of them are below 0.1" in errors.caption and "mean 0.1" in errors.svg
    assert HOSTILE not in scatter.svg + errors.svg, "names stand in captions, which the page escapes"


def test_scores_are_drawn_with_the_threshold(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", answers=np.array([0.1, 0.2, 0.4, 0.6, 0.9]), labels=np.array([0, 0, 1, 0, 1]))
    curve, bars = figures(manifest(**ANOMALY), tmp_path / "a.npz")
    assert "ROC" in curve.caption and "anomalies" in bars.svg and "from 0.5 on" in bars.caption


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"\x93NUMPY"])
def test_no_file_or_a_damaged_one_leaves_no_figure(content: bytes, tmp_path: Path) -> None:
    assert figures(manifest(**ANOMALY), tmp_path / "none.npz") == []
    (tmp_path / "a.npz").write_bytes(content)
    assert figures(manifest(**ANOMALY), tmp_path / "a.npz") == []
    np.savez(tmp_path / "b.npz", answers=np.array([{}]), labels=np.zeros(1))
    np.savez(tmp_path / "c.npz", answers=np.full(3, np.nan), labels=np.zeros(3))
    np.savez(tmp_path / "d.npz", answers=np.array(["a"]), labels=np.zeros(1))
    assert figures(manifest(**ANOMALY), tmp_path / "d.npz") == []
    assert figures(manifest(**ANOMALY), tmp_path / "b.npz") == figures(manifest(**ANOMALY), tmp_path / "c.npz") == []
    assert figures(manifest(learning=VALUES), tmp_path / "c.npz") == []


def test_figures_are_told_by_name_and_old_manifests_by_accuracy() -> None:
    found = manifest(learning=VALUES, test_figures={"mae": 0.25, "r2": 0.5}, test_figures_float={"mae": 0.2})
    assert (found.told, found.told_float) == ("mae 0.2500", "mae 0.2000")
    assert NetworkManifest.model_validate(NETWORK).told.startswith("accuracy 0.")
