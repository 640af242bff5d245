"""From training to the bundle where no classes are told apart: figures, threshold, answers, C that says the same."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from automcu_ray.core.learning import Learning
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.problem.task import Task
from automcu_ray.records.journal import Repository
from backends.boards.qemu import QemuBoard
from tests.trainables.finalists.pipelines import CANDIDATE
from tests.trainables.finalists.test_finalist import asked
from tests.trainables.training.test_losses import values
from trainables.datasets.base import Dataset, Split
from trainables.datasets.digits import digits
from trainables.datasets.targets import only_normal
from trainables.finalists.finalist import run_finalist
from trainables.finalists.test_evaluation import evaluate_on_test

pytestmark = [pytest.mark.thorough, pytest.mark.training]


def few(split: Split) -> Split:
    return Split(split.images[:200], split.labels[:200])


@pytest.mark.parametrize("kind", ["regression", "anomaly"])
def test_what_ships_is_judged_by_its_own_metrics_beside_the_mean(
    qemu: None, digits_task: Task, kind: str, tmp_path: Path
) -> None:
    data: Dataset = values() if kind == "regression" else only_normal(digits(), ("0",))
    task = digits_task.replace(num_classes=data.outputs, learning=Learning.of(data.kind, targets=data.targets))
    about = asked(
        task,
        tmp_path,
        protocol=Protocol(epochs=12, batch_size=32, learning_rate=0.05, qat_epochs=int(kind == "anomaly")),
        board=QemuBoard(),
    )
    about = dataclasses.replace(about, train_split=few(data.train), val_split=few(data.val))
    winner = run_finalist(CANDIDATE, about)
    assert winner.usable, winner.reason
    known: dict[str, Any] = {"seeds": {}, "versions": {}, "architecture": None, "classes": data.classes}
    test = data.test.open("this test", Repository())
    made = evaluate_on_test(winner, about, test, board_images=4, bundle=tmp_path / "bundle", about=known)
    assert (made.test_accuracy, made.confusion, made.mistakes) == (None, (), ()) and made.bit_equal_images == 4
    answers = np.load(tmp_path / "bundle_answers.npz")
    assert made.learning.figures(answers["answers"], answers["labels"]) == pytest.approx(made.test_figures)
    header = (tmp_path / "bundle" / "src" / "net.h").read_text()
    written = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert written["learning"]["kind"] == kind and written["test_accuracy"] is None
    if kind == "regression":
        assert made.anomaly is None and made.trivial_figures["r2"] < 0.01 < made.test_figures["r2"]
        assert "net_estimate(" in header and f"{data.targets[1].deviation:.8e}f" in header
        assert (tmp_path / "bundle" / "examples" / "estimate" / "estimate.ino").exists()
    else:
        assert made.anomaly is not None and made.anomaly.normal + made.anomaly.anomalies == len(test)
        called = answers["answers"] >= made.anomaly.threshold
        assert called[test.labels == 1].mean() == pytest.approx(made.anomaly.found)
        assert "net_score(" in header and f"#define NET_THRESHOLD {made.anomaly.threshold:.8e}f" in header
        assert made.trivial_figures["auc"] > 0.5
