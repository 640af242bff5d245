import pytest

from automcu_ray.problem.target import McuTarget
from automcu_ray.runtime.config import CONFIGS, read_yaml


def read_target(name: str) -> McuTarget:
    return McuTarget.model_validate(read_yaml(CONFIGS / "target" / f"{name}.yaml"))


@pytest.fixture
def target() -> McuTarget:
    return read_target("stm32f405")
