"""What contract suites ask about: digits of 8x8 pixels on an STM32F405, with room and with hardly any."""

from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config_files import CONFIGS, read_yaml


def read_target(name: str) -> McuTarget:
    """Return a target of `configs/target/`."""
    return McuTarget.model_validate(read_yaml(CONFIGS / "target" / f"{name}.yaml"))


def make_task(shape: tuple[int, int, int] = (1, 8, 8), ram_kb: float = 24, flash_kb: float = 48) -> Task:
    """Return a task of ten classes on an STM32F405, the digits of the main job by default; `shape` is (C, H, W)."""
    return Task(
        dataset="digits",
        input_shape=shape,
        num_classes=10,
        target=read_target("stm32f405"),
        constraints=Constraints(ram_kb=ram_kb, flash_kb=flash_kb),
    )


def make_tight_task() -> Task:
    """Return the same with limits that a searcher soon runs into."""
    return make_task(ram_kb=2, flash_kb=6)
