"""What a run's data are for: taken from the data and the configuration, and nonsense refused by its name."""

from pathlib import Path

import numpy as np
import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.run.plan import Plan, prepare
from automcu_ray.runtime.config import compose
from searchers.dialogue.prompts import Prompter

NORMAL = ["normal=['0', '1']", "trainer=autoencoder"]


def planned(*settings: str) -> Plan:
    return prepare(compose({"task": "digits", "searcher": "random", "backend": "analytic"}, list(settings)))


@pytest.fixture
def values(tmp_path: Path) -> list[str]:
    """Settings that make the task one of two values."""
    images = np.random.default_rng(0).integers(0, 256, (300, 1, 8, 8), dtype=np.uint8)
    targets = np.stack([images.mean(axis=(1, 2, 3)), images[:, 0, 0, 0]], axis=1)
    np.savez(tmp_path / "data.npz", images=images, targets=targets)
    return [f"dataset={{name: npz, folder: {tmp_path}}}", "trainer=few_values"]


def test_the_data_say_what_is_learnt_and_the_configuration_by_which_metric(values: list[str]) -> None:
    task = planned(*values).task
    assert (task.learning.kind, task.learning.metric, task.learning.loss, task.num_classes) == (
        "regression",
        "r2",
        "mse",
        2,
    )
    other = planned(*values, "metric=mae", "loss=huber").task.learning
    assert (other.metric, other.loss) == ("mae", "huber")
    anomaly = planned(*NORMAL).task
    assert (anomaly.learning.metric, anomaly.num_classes, anomaly.space.reconstructs) == ("auc", 64, True)
    assert planned("metric=macro_f1").task.learning.metric == "macro_f1"
    assert planned().task.evidence is not None and anomaly.evidence is None, "an interval is of an accuracy"


def test_a_floor_is_in_the_metrics_unit(values: list[str]) -> None:
    learning = planned(*values, "metric=mae").task.learning
    settings = ["objective=flash", "metric=mae", f"constraints.metric={learning.trivial_mae / 4}"]
    with pytest.raises(ConfigError, match="which nothing measures here"):  # all else is fine
        planned(*values, *settings)
    task = planned(*values, "metric=mae").task
    task = task.replace(objective="flash", constraints=task.constraints.replace(metric=learning.trivial_mae / 4))
    assert task.aim is not None and task.aim.floor == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["metric=auc"], "metric=auc: the data are for classification"),
        (["normal=[a]", "trainer=autoencoder"], "unknown class 'a'"),
        (
            ["normal=['0']"],
            "trainer.full.label_smoothing=0.05 is for classes, .* set it to 0, or take trainer=autoencod",
        ),
        ([*NORMAL, "trainer.proxy.class_weights=true"], "class_weights=True is for classes.*set it to false"),
        ([*NORMAL, "trainer.full.mixup=0.2"], "trainer.full.mixup=0.2 is for classes"),
        ([*NORMAL, "trainer.full.cutmix=0.2"], "trainer.full.cutmix=0.2 is for classes"),
        ([*NORMAL, "trainer.full.distill=0.9"], "trainer.full.distill=0.9 is for classes"),
        ([*NORMAL, "metric=accuracy"], "metric=accuracy: the data are for anomaly, which has auc, partial_auc"),
        ([*NORMAL, "constraints.accuracy=0.9"], "is an accuracy, and the metric here is auc: set constraints.metric"),
        ([*NORMAL, "supervisor.enough=0.9"], "supervisor.enough=0.9 is an accuracy, .* leave it out"),
        ([*NORMAL, "constraints.metric=0.9"], "constraints.metric has no effect"),
        ([*NORMAL, "budget.bundles=3"], "for instance constraints.metric=0.9, in the unit"),
        ([*NORMAL, "objective=flash", "constraints.metric=1"], "the largest auc is 1"),
        ([*NORMAL, "objective=flash", "constraints.metric=0.5"], "chance has a auc of 0.5"),
        ([*NORMAL, "skeleton={channels: 4}"], "skeleton: cells tell classes apart"),
        (["constraints.metric=0.9"], "the metric here is accuracy: set constraints.accuracy"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        planned(*settings)


def test_an_error_that_needs_no_network_is_no_floor(values: list[str]) -> None:
    with pytest.raises(ConfigError, match="answering the median, whatever the input, has a mae of"):
        planned(*values, "metric=mae", "objective=flash", "constraints.metric=1000")


def test_a_prompt_speaks_of_the_metric(values: list[str]) -> None:
    for settings, words in ((values, "estimates its outputs, with the highest r2"), (NORMAL, "with the highest auc")):
        task = planned(*settings).task
        said = "\n".join(message.content for message in Prompter(task).proposer({}, [], 1).messages)
        assert words in said and "classif" not in said.replace('"classifier"', "") and "accuracy" not in said
