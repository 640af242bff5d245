"""Fixtures that more than one folder of tests uses."""

import pytest

from automcu_ray.config import CONFIGS, read_yaml
from automcu_ray.target import Constraints, McuTarget
from automcu_ray.task import Task


@pytest.fixture(scope="session")
def stm32f405() -> McuTarget:
    return McuTarget.model_validate(read_yaml(CONFIGS / "target" / "stm32f405.yaml"))


@pytest.fixture(scope="session")
def digits_task(stm32f405: McuTarget) -> Task:
    """The default task: 8x8 grey digits within 24 KB RAM and 48 KB Flash."""
    limits = Constraints(ram_kb=24, flash_kb=48)
    return Task(dataset="digits", input_shape=(1, 8, 8), num_classes=10, target=stm32f405, constraints=limits)
