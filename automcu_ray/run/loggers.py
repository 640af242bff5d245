"""Ray Tune's own loggers, by name: what others show trials with."""

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from automcu_ray.core.errors import ToolMissingError

_PROJECT = "automcu_ray"
_LOGGERS: dict[str, tuple[str, str, str, dict[str, str]]] = {  # package, module, class, what it is given
    "tensorboard": ("tensorboardX", "ray.tune.logger", "TBXLoggerCallback", {}),
    "wandb": ("wandb", "ray.air.integrations.wandb", "WandbLoggerCallback", {"project": _PROJECT}),
    "mlflow": ("mlflow", "ray.air.integrations.mlflow", "MLflowLoggerCallback", {"experiment_name": _PROJECT}),
}


def require(names: Sequence[str]) -> None:
    """Raise where a logger's package is not installed.

    Raises:
        ToolMissingError: says which, and how to install it.
    """
    for name in names:
        package = _LOGGERS[name][0]
        if importlib.util.find_spec(package) is None:
            raise ToolMissingError(
                f"logger {name!r} needs the Python package {package}: pip install 'automcu-ray[{name}]'."
            )


def callbacks(names: Sequence[str]) -> list[Any]:
    """Return a new callback of Ray Tune for each logger."""
    made = []
    for name in names:
        _, module, kind, options = _LOGGERS[name]
        made.append(getattr(importlib.import_module(module), kind)(**options))
    return made
