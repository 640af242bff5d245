"""Tasks of the arena as their files have them."""

from automcu_ray.problem.arena import ArenaTask, task_of
from automcu_ray.runtime.config_files import load


def arena_task(name: str = "qemu_speed") -> ArenaTask:
    text = load("arena", name)
    target = text["target"]
    return task_of(name, {**text, "target": load("target", target) if isinstance(target, str) else target})
