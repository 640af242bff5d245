"""What the data of a run are for, and what of a configuration has no meaning for that: refused by name."""

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.learning import METRICS, Kind, Learning
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import RunConfig
from trainables.datasets.base import Dataset
from trainables.datasets.nasbench201 import Table
from trainables.datasets.targets import only_normal

_USUAL: dict[Kind, str] = {"regression": "few_values", "anomaly": "autoencoder"}
CHANCE = 0.5  # the AUC of who knows nothing
_OF_CLASSES = ("label_smoothing", "class_weights", "mixup", "cutmix", "distill")  # keys of a protocol


def as_asked(config: RunConfig, dataset: Dataset | Table) -> Dataset | Table:
    """Return a data set, as one for anomaly detection where the configuration says which classes are normal.

    Raises:
        ConfigError: it has no such classes.
    """
    if not config.normal:
        return dataset
    if isinstance(dataset, Table):
        raise ConfigError(f"normal: {dataset.name} is a table of accuracies, which has no examples: leave it out.")
    return only_normal(dataset, config.normal)


def learning_of(config: RunConfig, dataset: Dataset | Table) -> Learning:
    """Return what is learnt from a data set, by the metric and the loss that the configuration names.

    Raises:
        ConfigError: the data are for another kind of task.
    """
    if isinstance(dataset, Table):
        if config.metric not in (None, "accuracy") or config.loss is not None:
            raise ConfigError(f"metric, loss: {dataset.name} is a table of accuracies: leave them out.")
        return Learning()
    return Learning.of(dataset.kind, config.metric, config.loss, dataset.targets)


def check_learning(config: RunConfig, task: Task) -> None:
    """Refuse what is for classes alone where none are told apart, and floors in another metric's unit.

    Raises:
        ConfigError: there is such a key.
    """
    learning = task.learning
    _check_floors(config, learning)
    if learning.kind == "classification":
        return
    if config.writes_code:
        raise ConfigError(
            "searcher.form is 'code': generated code is trained to tell classes apart, and this task is "
            f"{learning.kind}: search specs."
        )
    if task.form == "cell":
        raise ConfigError(f"skeleton: cells tell classes apart, and this task is {learning.kind}: leave it out.")
    for which, protocol in (("proxy", config.trainer.proxy), ("full", config.trainer.full)):
        if found := [key for key in _OF_CLASSES if getattr(protocol, key)]:
            key = f"trainer.{which}.{found[0]}"
            raise ConfigError(
                f"{key}={getattr(protocol, found[0])} is for classes, and this task is {learning.kind}: set it to "
                f"{'false' if found[0] == 'class_weights' else 0}, or take trainer={_USUAL[learning.kind]}."
            )


def _check_floors(config: RunConfig, learning: Learning) -> None:
    limits = config.constraints
    metric = METRICS[learning.metric]
    accuracies = {"constraints.accuracy": limits.accuracy, "supervisor.enough": config.supervisor.enough}
    if learning.metric == "accuracy":
        if limits.metric is not None:
            raise ConfigError("constraints.metric: the metric here is accuracy: set constraints.accuracy.")
    elif given := [key for key, value in accuracies.items() if value is not None]:
        raise ConfigError(
            f"{given[0]}={accuracies[given[0]]:g} is an accuracy, and the metric here is {learning.metric}: "
            + ("set constraints.metric, in its unit." if given[0].startswith("c") else "leave it out.")
        )
    if limits.metric is not None:
        if metric.more_is_better and limits.metric >= 1:
            raise ConfigError(
                f"constraints.metric={limits.metric:g}: the largest {learning.metric} is 1: give a number below that."
            )
        if learning.kind == "anomaly" and limits.metric <= CHANCE:
            raise ConfigError(
                f"constraints.metric={limits.metric:g}: chance has a {learning.metric} of 0.5: ask for more."
            )
        if not metric.more_is_better and limits.metric >= learning.trivial_mae:
            raise ConfigError(
                f"constraints.metric={limits.metric:g}: answering the median, whatever the input, has a "
                f"{learning.metric} of {learning.trivial_mae:.4g} on the training examples: ask for less."
            )
