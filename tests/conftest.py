"""Fixtures that more than one folder of tests uses; what a fixture needs marks the tests that ask for it."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: tests run side by side

import ipaddress
import platform
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from automcu_ray.core.errors import ToolMissingError
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.runtime import interruption
from automcu_ray.runtime.config import JailConfig
from automcu_ray.runtime.config_files import CONFIGS, read_yaml
from backends.programs import missing

MARKS = {"ray_cluster": "ray", "gcc": "toolchain", "host_gcc": "toolchain", "qemu": "toolchain", "sandbox": "jail"}
LONGEST_FIRST = ("ray", "jail", "training", "toolchain")


def _own_address() -> str:
    """Return the address that this machine would send from, which Ray gives its processes; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))
        except OSError:  # no network at all
            return "127.0.0.1"
        return str(asked.getsockname()[0])


OWN_ADDRESS = _own_address()


def _refuse_network(event: str, about: tuple[Any, ...]) -> None:
    """Let no test depend on what is beyond this machine; a datagram socket sends nothing by connecting."""
    if event != "socket.connect" or about[0].family not in (socket.AF_INET, socket.AF_INET6):
        return
    host = about[1][0]
    if (
        about[0].type & socket.SOCK_DGRAM
        or host in ("localhost", OWN_ADDRESS)
        or ipaddress.ip_address(host).is_loopback
    ):
        return
    raise RuntimeError(f"tests do without a network: {host} is beyond this machine. Serve it on 127.0.0.1.")


sys.addaudithook(_refuse_network)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their fixtures; side by side, a file stays in one worker, and so do all tests of the one Ray.

    Long ones come first, so that no worker is left alone with them at the end.
    """
    rank: dict[str, int] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        fixtures = set(getattr(item, "fixturenames", ()))
        for name in sorted(fixtures & MARKS.keys()):
            item.add_marker(MARKS[name])
        item.add_marker(pytest.mark.xdist_group("ray" if "ray_cluster" in fixtures else file))
        marks = [mark.name for mark in item.iter_markers() if mark.name in LONGEST_FIRST]
        rank[file] = min([rank.get(file, len(LONGEST_FIRST)), *map(LONGEST_FIRST.index, marks)])
    items.sort(key=lambda item: rank[item.nodeid.partition("::")[0]])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where xdist cannot group, each worker would start its own Ray and leave its hanging actors to other tests."""
    if session.config.getoption("loadgroup", False) and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("this pytest-xdist cannot group tests under this pytest: see pyproject.toml")


@pytest.fixture(scope="session")
def stm32f405() -> McuTarget:
    return McuTarget.model_validate(read_yaml(CONFIGS / "target" / "stm32f405.yaml"))


@pytest.fixture(scope="session")
def digits_task(stm32f405: McuTarget) -> Task:
    """The default task: 8x8 grey digits within 24 KB RAM and 48 KB Flash."""
    limits = Constraints(ram_kb=24, flash_kb=48)
    return Task(dataset="digits", input_shape=(1, 8, 8), num_classes=10, target=stm32f405, constraints=limits)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One Ray for all tests: one CPU, and one GPU in name, so that who reserves it can be seen on any machine."""
    from automcu_ray.runtime.cluster import ray

    ray.init("local", num_cpus=1, num_gpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Handlers of signals as they were, and no signal of a test before."""
    monkeypatch.setattr(interruption, "_received", None)
    monkeypatch.setattr(interruption, "_urgent", False)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # a command of a test before may have blocked it
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def gcc() -> None:
    if absent := missing(["arm-none-eabi-gcc", "arm-none-eabi-size"]):
        pytest.skip(f"needs {', '.join(absent)}: apt install gcc-arm-none-eabi libnewlib-arm-none-eabi")


@pytest.fixture(scope="session")
def host_gcc() -> None:
    """Where onnxruntime is the reference, bit by bit: its Arm kernels sum and round in fixed point instead."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("needs onnxruntime's kernels for x86-64")
    if missing(["gcc"]):
        pytest.skip("needs gcc, a C compiler for this computer")


@pytest.fixture(scope="session")
def qemu(gcc: None) -> None:
    if missing(["qemu-system-arm"]):
        pytest.skip("needs qemu-system-arm: apt install qemu-system-arm")


@pytest.fixture(scope="session")
def sandbox() -> None:
    from trainables.jail.sandbox import require_sandbox

    try:
        require_sandbox(JailConfig())
    except ToolMissingError as error:
        pytest.skip(str(error))
