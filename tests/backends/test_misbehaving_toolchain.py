"""A toolchain that hangs, crashes, prints rubbish or fills the disk costs one record, and the run goes on."""

import functools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from backends.c_qemu import backend as c_qemu
from backends.programs import LOG, run_program
from backends.toolchain import Toolchain
from searchers.gate.gate import Gate

pytestmark = pytest.mark.usefixtures("gcc")

# What a compiler does in place of compiling net.c, and what the error says then.
MISCHIEF = {
    "exit 7": "failed \\(7\\)",
    "kill -SEGV $$": "failed",
    "echo '\\033[2J rubbish'; exit 0": "net\\.ci",
    "printf '\\377\\376\\000'; echo rubbish > net.o; echo rubbish > net.ci": "should hold net",
    "sleep 64.25": "should end within",
    "sleep 64.25 & sleep 64.25": "should end within",
    "yes rubbish": "should say at most",
    "yes rubbish >&2": "should say at most",
    "cat /dev/zero > net.o": "failed|net\\.ci|in its folder",
    "i=0; while :; do head -c 3000000 /dev/zero > $((i += 1)); done": "in its folder",
    "ln -sf /dev/full net.o; echo x > net.o": "failed|net\\.ci",
}


def shorten_limits(toolchain: Toolchain) -> None:
    c_qemu.COMPILE_TIMEOUT_S = 4.0
    toolchain.backend.run = functools.partial(run_program, disk_bytes=32_000_000)


class ShortTempered(Toolchain):
    """The toolchain actor, with limits that a test can wait for, and the PATH of the test."""

    def __init__(self, path: str, *about: Any) -> None:
        os.environ["PATH"] = path
        super().__init__(*about)

    def check(self, candidate: Candidate) -> FeasibilityReport:
        shorten_limits(self)
        return super().check(candidate)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], None]]:
    """Put a compiler first on PATH; what the test tells it is what it does to net.c, and "" is honest work."""
    folder, real = tmp_path_factory.mktemp("bin"), shutil.which("arm-none-eabi-gcc")
    fake = folder / "arm-none-eabi-gcc"
    orders = f"[ ! -s {folder}/orders ] || {{ . {folder}/orders; exit; }}"
    fake.write_text(f'#!/bin/sh\ncase "$*" in *"-c net.c"*) {orders} ;; esac\nexec {real} "$@"\n')
    fake.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        patch.setattr(c_qemu, "COMPILE_TIMEOUT_S", c_qemu.COMPILE_TIMEOUT_S)  # put back at the end
        yield lambda orders: (folder / "orders").write_text(orders) and None


def candidate(task: Task, number: int) -> Candidate:
    spec = ArchitectureSpec.model_validate({"backbone": [{"type": "conv", "out_channels": 4 + number}]})
    return task.space.candidate(spec, number=number)


@pytest.mark.parametrize("orders", MISCHIEF)
def test_mischief_is_a_toolchain_error_soon_and_leaves_a_short_log(
    orders: str, compiler: Callable[[str], None], digits_task: Task, tmp_path: Path
) -> None:
    toolchain, one = Toolchain(digits_task, "c_qemu", {}, tmp_path), candidate(digits_task, 1)
    shorten_limits(toolchain)
    compiler(orders)
    with pytest.raises(ToolchainError, match=MISCHIEF[orders]):
        toolchain.check(one)
    assert [path.name for path in (tmp_path / one.hash).iterdir()] == [LOG]
    log = (tmp_path / one.hash / LOG).read_text()
    assert "arm-none-eabi-gcc" in log and len(log) < 100_000
    compiler("")
    assert toolchain.check(one).feasible


def test_every_mischief_costs_one_record_and_the_run_goes_on(
    ray_cluster: None, compiler: Callable[[str], None], digits_task: Task, tmp_path: Path
) -> None:
    actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)(ShortTempered)
    handle = actor.options(name="short-tempered").remote(os.environ["PATH"], digits_task, "c_qemu", {}, tmp_path)
    gate = Gate(digits_task, workers=["short-tempered"])
    orders = ["", "exit 7", "sleep 64.25", "yes", "cat /dev/zero > net.o", ""]
    reports = []
    for number, order in enumerate(orders):
        compiler(order)
        assert gate.submit(candidate(digits_task, number)) is None
        while len(reports) <= number:
            reports += [report for _, report in gate.poll()]
            time.sleep(0.05)
    assert [report.feasible for report in reports] == [order == "" for order in orders]
    assert {report.violations[0].resource for report in reports if not report.feasible} == {"tool"}
    ray.kill(handle)
