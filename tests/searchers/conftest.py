from pathlib import Path

import pytest
import yaml

from automcu_ray.target import Constraints, McuTarget
from automcu_ray.task import Task

TARGET = Path(__file__).parents[2] / "configs" / "target" / "stm32f405.yaml"


def make_task(shape: tuple[int, int, int] = (1, 8, 8), ram_kb: float = 24, flash_kb: float = 48) -> Task:
    """The digits of the main job by default."""
    return Task(
        dataset="digits",
        input_shape=shape,
        num_classes=10,
        target=McuTarget.model_validate(yaml.safe_load(TARGET.read_text())),
        constraints=Constraints(ram_kb=ram_kb, flash_kb=flash_kb),
    )


@pytest.fixture
def task() -> Task:
    return make_task()


@pytest.fixture
def tight_task() -> Task:
    """Limits that a searcher soon runs into."""
    return make_task(ram_kb=2, flash_kb=6)
