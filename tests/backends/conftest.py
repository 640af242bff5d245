import platform
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from automcu_ray.export import DeployedNetwork
from automcu_ray.target import McuTarget
from automcu_ray.task import Precision
from backends.programs import missing
from tests.networks_for_export import deployed_network

TARGETS = Path(__file__).parents[2] / "configs" / "target"


def read_target(name: str) -> McuTarget:
    return McuTarget(**yaml.safe_load((TARGETS / f"{name}.yaml").read_text()))


@pytest.fixture
def target() -> McuTarget:
    return read_target("stm32f405")


@pytest.fixture
def deployed() -> Callable[[str, Precision], DeployedNetwork]:
    return deployed_network


@pytest.fixture
def gcc() -> None:
    if absent := missing(["arm-none-eabi-gcc", "arm-none-eabi-size"]):
        pytest.skip(f"needs {', '.join(absent)}: apt install gcc-arm-none-eabi libnewlib-arm-none-eabi")


@pytest.fixture
def host_gcc() -> None:
    """Where onnxruntime is the reference, bit by bit: its Arm kernels sum and round in fixed point instead."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("needs onnxruntime's kernels for x86-64")
    if missing(["gcc"]):
        pytest.skip("needs gcc, a C compiler for this computer")


@pytest.fixture
def qemu(gcc: None) -> None:
    if missing(["qemu-system-arm"]):
        pytest.skip("needs qemu-system-arm: apt install qemu-system-arm")
