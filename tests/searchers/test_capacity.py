from random import Random

from automcu_ray.cell import CellSpec
from automcu_ray.cell_space import CellSpace
from automcu_ray.task import Task
from searchers.capacity import CapacitySearch


def test_cells_come_by_capacity_and_none_twice(task: Task) -> None:
    searcher = CapacitySearch(task.model_copy(update={"form": "cell"}), seed=3)
    found = []
    for number in range(12):
        config = searcher.suggest(f"t{number}")
        assert isinstance(config, dict)
        found.append(CellSpec.model_validate(config["cell"]))
        searcher.on_trial_complete(f"t{number}", {"val_accuracy": 0.5})
    assert found == CellSpace().by_capacity(Random(3))[:12]
    assert {record.status for record in searcher.repository.records} == {"ok"}
