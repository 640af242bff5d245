"""A trial whose training has been done by others: the accuracy is looked up."""

from typing import Any

from ray import tune

from automcu_ray.cell import CellSpec
from automcu_ray.record import TrainingSummary
from trainables.datasets.nasbench201 import Table


class TableTrainable(tune.Trainable):  # type: ignore[misc]
    """Reports the validation accuracy that a table has for `config["cell"]`, in one step."""

    def setup(self, config: dict[str, Any], table: Table) -> None:
        self.table = table
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.config = new_config
        return True

    def step(self) -> dict[str, Any]:
        accuracy = self.table.val_accuracy(CellSpec.model_validate(self.config["cell"]))
        summary = TrainingSummary(val_accuracy=accuracy, val_accuracy_float=accuracy, device="table")
        return {"val_accuracy": accuracy, "training": summary.model_dump(), "done": True}
