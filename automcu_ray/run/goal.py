"""What is sought, and within which limits: refused before the run where nothing here could tell."""

from collections.abc import Sequence

from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import RunConfig
from backends.base import Backend
from backends.boards.base import Board


def check_goal(
    config: RunConfig, task: Task, backend: Backend | None, board: Board | None, opinions: Sequence[Backend]
) -> None:
    """Refuse limits and objectives that nothing here can measure, and floors that have no effect.

    Raises:
        ConfigError: which one, and what would measure it.
    """
    limits, target = config.constraints, task.target
    sought, several = config.objective, config.budget.bundles > 1
    on_boards = frozenset().union(*(one.measures for one in opinions if not one.decides))
    for figure, limit in (
        ("energy", limits.energy_mj),
        ("current", limits.current_ma),
        ("temperature", limits.temperature_c),
    ):
        if limit is not None and figure not in on_boards:
            raise ConfigError(
                f"constraints: {figure} is limited, which nothing here measures: take second_opinions="
                "[{name: board, map: boards.yaml}] with an instrument for it beside every board of the map."
            )
    if limits.latency_ms is not None and target.cycles_per_instruction is None and "latency" not in on_boards:
        raise ConfigError(
            f"constraints.latency_ms: nothing here measures time on {target.name!r}: QEMU counts instructions. Limit "
            "these with constraints.instructions_m, or give the target's file cycles_per_instruction: {value, source}, "
            "as measured on the board: latency is estimated by it; or measure finalists: second_opinions="
            "[{name: board, map: boards.yaml}]."
        )
    counts = board is not None and "instructions" in board.measures
    if not counts and (task.instructions_limit is not None or sought == "instructions"):
        key = "objective" if sought == "instructions" else "constraints"
        raise ConfigError(
            f"{key}: nothing counts instructions here: take --backend c_qemu, a target with an emulator, such as "
            "stm32f405, and not board.mode=none."
        )
    measured = backend.measures if backend is not None and not task.on_table else frozenset()
    if sought in ("ram", "flash") and sought not in measured:
        raise ConfigError(f"objective is {sought!r}, which nothing measures here: take --backend c_qemu.")
    floor = "accuracy" if task.learning.metric == "accuracy" else "metric"
    if (sought != "accuracy" or several) and task.floor is None:
        key = f"objective is {sought!r}" if sought != "accuracy" else "budget.bundles is 3"
        usual = f"{floor}=0.95" if floor == "accuracy" else f"{floor}=0.9, in the unit of the task's metric"
        raise ConfigError(f"{key}: say how accurate is accurate enough, for instance constraints.{usual}.")
    if task.floor is not None and sought == "accuracy" and not several:
        raise ConfigError(
            f"constraints.{floor} has no effect where the most accurate network is sought: set objective=instructions, "
            "ram or flash, or leave it out."
        )
    if several and config.budget.finalists < config.budget.bundles:
        raise ConfigError(f"budget.bundles is 3: set budget.finalists=3 or more, found {config.budget.finalists}.")
