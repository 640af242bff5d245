"""What a prompt says is asked for: the kind of task, and what a network has to be like, by the task's metric."""

import json

from automcu_ray.core.learning import METRICS, Kind
from automcu_ray.networks.lowering import CODE, DECODER
from automcu_ray.problem.task import Task

_KINDS: dict[Kind, str] = {
    "classification": "{thing} classification",
    "regression": "Regression: numbers estimated from {thing}s,",
    "anomaly": "Anomaly detection by an autoencoder's reconstruction error,",
}
_DOES: dict[Kind, str] = {
    "classification": "classifies",
    "regression": "estimates its outputs",
    "anomaly": "reconstructs normal examples and no others",
}


def goal(task: Task) -> str:
    """Return what a network has to be like, as the end of "a network that ..."."""
    learning = task.learning
    metric, more = learning.metric, METRICS[learning.metric].more_is_better
    if task.aim is None and metric == "accuracy":
        return "classifies as accurately as possible within the limits"
    if task.aim is None:
        return f"{_DOES[learning.kind]}, with {'the highest' if more else 'the lowest'} {metric} that the limits allow"
    costs = {"instructions": "takes as few instructions per inference", "ram": "needs as little RAM"}
    cost = costs.get(task.aim.objective, "needs as little Flash")
    if metric != "accuracy":
        floor, there = (learning.value_of(score) for score in (task.aim.floor, task.aim.proxy_floor))
        asked = f"a validation {metric} of {floor:.4g} or {'more' if more else 'less'} after full training"
        return f"{cost} as possible and has {asked}. The search trains briefly: there {there:.4g} is enough"
    return (
        f"{cost} as possible and is accurate enough: {task.aim.floor:.4g} on validation {thing(task)}s after full "
        "training. "
        f"The search trains briefly: there {task.aim.proxy_floor:.4g} is enough, and more accuracy is worth nothing"
    )


def kind(task: Task) -> str:
    """Return what is asked of a network, as a heading says it."""
    said = _KINDS[task.learning.kind].format(thing=thing(task))
    return said[0].upper() + said[1:]


def thing(task: Task) -> str:
    """Return what a network is given: an image, or a signal whose windows move along one axis."""
    return "signal" if task.space.is_signal else "image"


def head(task: Task) -> str:
    """Return the head that most networks have, as JSON with every field that it has in a task's space."""
    bottleneck = {"code": CODE, "decoder": DECODER} if task.space.reconstructs else {}
    return json.dumps({"type": "classifier", "positions": 1, **bottleneck})
