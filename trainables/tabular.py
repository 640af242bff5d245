"""A trial whose training has been done by others: the accuracy is looked up."""

import time
from typing import Any

from ray import tune
from ray.tune.search import Searcher

from automcu_ray.networks.cell import CellSpec
from automcu_ray.records.record import TrainingSummary
from trainables.datasets.nasbench201 import Table

_WAIT_S = 0.005


class TableTrainable(tune.Trainable):  # type: ignore[misc]
    """Reports the validation accuracy that a table has for `config["cell"]`, in one step."""

    def setup(self, config: dict[str, Any], table: Table) -> None:
        self.table = table
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.config = new_config
        return True

    def step(self) -> dict[str, Any]:
        return {**_result(self.table, self.config), "done": True}


def _result(table: Table, config: dict[str, Any]) -> dict[str, Any]:
    accuracy = table.val_accuracy(CellSpec.model_validate(config["cell"]))
    return TrainingSummary(val_accuracy=accuracy, val_accuracy_float=accuracy, device="table").reported()


def drive(searcher: Any, table: Table) -> None:
    """Let a searcher (Ray Tune's protocol) have accuracies of a table until it is finished, one trial at a time."""
    number = 0
    while (config := searcher.suggest(f"look_up_{number}")) != Searcher.FINISHED:
        if config is None:
            time.sleep(_WAIT_S)  # its engine is still writing
            continue
        searcher.on_trial_complete(f"look_up_{number}", _result(table, config))
        number += 1
