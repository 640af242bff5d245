"""In which order layouts are asked for the cheapest network."""

from automcu_ray.core.objective import Aim
from automcu_ray.networks.layouts import FAMILIES
from automcu_ray.problem.task import Task
from searchers.heuristics.cheapest_first import CheapestFirst
from searchers.heuristics.width_fitting import WidthFitting


def test_each_family_begins_with_a_last_stage_of_four_by_four(digits_task: Task) -> None:
    task = digits_task.replace(input_shape=(3, 32, 32))
    aim = Aim(objective="instructions", floor=0.9)
    for seed in range(3):
        first = CheapestFirst(task, aim, WidthFitting(task), seed=seed, startup=6).usual[: len(FAMILIES)]
        assert {layout.family for layout in first} == set(FAMILIES)
        assert {layout.last_side(task.space) for layout in first} == {4}
