import pytest

from automcu_ray.problem.target import McuTarget
from automcu_ray.testing.tasks import read_target


@pytest.fixture
def target() -> McuTarget:
    return read_target("stm32f405")
