"""Generated code in the places of specs: the toolchain, the proxy trial, the finalist."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.core.feasibility import FeasibilityReport, Rung
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import TrainingSummary
from automcu_ray.runtime.config import JailConfig
from automcu_ray.sizing.verdict_cache import VerdictCache
from backends.programs import scratch_folder
from backends.toolchain import Toolchain
from tests.trainables.finalists.pipelines import DATA, SPEC, pipeline
from tests.trainables.jail.jailed import jailed_pythons, needs_sandbox
from trainables.finalists.finalist import run_finalist
from trainables.jail.toolchain import CodeToolchain
from trainables.proxy import ProxyTrainable

TOOLS = pytest.mark.usefixtures("gcc")
NET = """from torch import nn

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.conv, self.act = nn.Conv2d(1, width, 3, stride=2), nn.ReLU()
        self.head = nn.Linear(9 * width, 10)

    def forward(self, x):
        return self.head(self.act(self.conv(x)).flatten(1))
"""

pytestmark = needs_sandbox


@pytest.fixture(scope="module")
def toolchain(digits_task: Task, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodeToolchain]:
    toolchain = CodeToolchain(digits_task, "c_qemu", {}, tmp_path_factory.mktemp("toolchain"), JailConfig())
    yield toolchain
    toolchain.close()


@TOOLS
def test_code_is_measured_as_a_spec_is(toolchain: CodeToolchain) -> None:
    report = toolchain.check(Candidate(hash="abc", code=NET))
    assert (report.feasible, report.rung) == (True, Rung.LINK)
    assert (report.parameters, report.macs) == (40 + 370, 9 * 9 * 4 + 360)
    assert report.ram_bytes is not None and report.flash_bytes is not None
    assert {"shapes", "convert", "link"} <= report.seconds_by_rung.keys()


@TOOLS
def test_what_does_not_fit_says_by_how_much(toolchain: CodeToolchain) -> None:
    report = toolchain.check(Candidate(hash="abc", code=NET.replace("width=4", "width=800")))
    (violation,) = (v for v in report.violations if v.resource == "flash")
    assert report.rung == Rung.LINK and violation.over_bytes is not None and violation.over_bytes > 0


@TOOLS
def test_what_is_far_too_large_is_refused_before_it_is_quantised(toolchain: CodeToolchain) -> None:
    wide = NET.replace("width=4", "width=200_000").replace("3, stride=2", "1, stride=8").replace("9 * width", "width")
    report = toolchain.check(Candidate(hash="abc", code=wide))
    (violation,) = report.violations
    assert (report.rung, violation.resource, violation.limit_bytes) == (Rung.ANALYTIC, "flash", 48 * 1024)
    assert violation.found_bytes == 2 * 200_000 + 10 * 200_000 + 10


@TOOLS
def test_the_same_network_written_otherwise_is_known(toolchain: CodeToolchain) -> None:
    again = NET.replace("self.act(self.conv(x))", "nn.functional.relu(self.conv(x))").replace("conv", "first")
    hashes = [toolchain.check(Candidate(hash="abc", code=c)).network_hash for c in (NET, again)]
    other = toolchain.check(Candidate(hash="abc", code=NET.replace("width=4", "width=5"))).network_hash
    assert hashes[0] == hashes[1] != other and len(other) == 12


@TOOLS
def test_a_server_that_died_is_nobody_s_time_and_leaves_no_folder(toolchain: CodeToolchain) -> None:
    toolchain.check(Candidate(hash="abc", code=NET))
    server = next(pid for pid, inner in jailed_pythons().items() if inner == 1)
    folders = set(scratch_folder().glob("jail-*"))
    os.kill(server, signal.SIGKILL)
    while Path(f"/proc/{server}").exists():
        time.sleep(0.02)
    report = toolchain.check(Candidate(hash="abc", code=NET))
    assert report.feasible and report.seconds_by_rung["convert"] < 0.8, "loading torch takes longer"
    assert len(set(scratch_folder().glob("jail-*"))) == len(folders)


def test_verdicts_on_code_are_for_one_task(digits_task: Task, tmp_path: Path) -> None:
    report = FeasibilityReport(feasible=True, backend="fake", rung=Rung.LINK)
    VerdictCache(tmp_path, digits_task, "1").put("abc", report)
    assert VerdictCache(tmp_path, digits_task, "1").get("abc") is not None
    for other in ({"input_shape": (3, 32, 32)}, {"num_classes": 100}):
        assert VerdictCache(tmp_path, digits_task.replace(**other), "1").get("abc") is None


@TOOLS
def test_specs_are_checked_as_ever(toolchain: CodeToolchain, digits_task: Task, tmp_path: Path) -> None:
    candidate = Candidate(hash="abc", spec=SPEC)
    usual = Toolchain(digits_task, "c_qemu", {}, tmp_path).check(candidate)
    assert toolchain.check(candidate).replace(seconds_by_rung={}) == usual.replace(seconds_by_rung={})


@pytest.fixture
def trainable(digits_task: Task) -> Iterator[ProxyTrainable]:
    before = jailed_pythons()
    trainable = object.__new__(ProxyTrainable)  # Tune's constructor wants a cluster's logger
    about: dict[str, Any] = {"seed": 1, "jail": JailConfig()}
    trainable.setup({}, digits_task, Protocol(epochs=2, learning_rate=0.05), DATA.train, DATA.val, **about)
    yield trainable
    trainable.cleanup()
    assert jailed_pythons() == before


def run(trainable: ProxyTrainable, config: dict[str, Any]) -> list[dict[str, Any]]:
    assert trainable.reset_config(config)
    results = [trainable.step()]
    while not results[-1].get("done"):
        results.append(trainable.step())
    return results


def test_a_proxy_trains_code_and_specs_in_turn(trainable: ProxyTrainable) -> None:
    code, spec = {"number": 4, "code": NET}, {"number": 5, "spec": {"backbone": [{"type": "conv", "out_channels": 4}]}}
    first, last = run(trainable, code)
    summary = TrainingSummary.model_validate(last["training"])
    assert (first["epoch"], summary.epochs, summary.seed) == (1, 2, 100_004)
    assert summary.peak_memory_bytes is not None and summary.val_accuracy > 0.2
    server = jailed_pythons()
    assert "training" in run(trainable, spec)[-1]
    assert run(trainable, code)[-1]["val_accuracy"] == last["val_accuracy"]
    assert jailed_pythons() == server, "the jail stays for the next candidate"


def test_a_view_behind_a_convolution_trains(trainable: ProxyTrainable) -> None:
    code = NET.replace(".flatten(1))", ".view(x.size(0), -1))")
    assert code != NET and "training" in run(trainable, {"number": 8, "code": code})[-1]


def test_code_that_fails_in_training_is_a_result_with_a_reason(trainable: ProxyTrainable) -> None:
    wild = NET.replace("self.head(", "(1 / 0 if self.training else 1) * self.head(")
    (result,) = run(trainable, {"number": 6, "code": wild})
    assert "ZeroDivisionError: division by zero" in result["failure"] and result["seconds"] > 0
    diverging = NET.replace("self.head(", "1e30 * self.head(")
    assert "diverged" in run(trainable, {"number": 7, "code": diverging})[-1]["failure"]


@TOOLS
def test_a_finalist_of_code_leaves_code_and_network(digits_task: Task, tmp_path: Path) -> None:
    toolchain, before = Toolchain(digits_task, "c_qemu", {}, tmp_path / "toolchain"), jailed_pythons()
    about = pipeline(digits_task, tmp_path, toolchain=toolchain)
    found = run_finalist(Candidate(number=3, hash="abc", code=NET), about)
    assert found.usable and found.training is not None
    assert (tmp_path / "abc" / "net.py").read_text() == NET
    assert Path(found.training.checkpoint).read_bytes() and (tmp_path / "abc" / "shipped" / "main.c").exists()
    assert jailed_pythons() == before


def test_code_that_lies_to_the_tracer_is_refused_with_its_line(toolchain: CodeToolchain) -> None:
    lying = NET.replace("return self", "return x.mean((1, 2, 3)).sum() * 0 if x.mean() > 0 else self")
    (violation,) = toolchain.check(Candidate(hash="abc", code=lying)).violations
    assert (violation.rung, violation.resource) == (Rung.CONVERT, "operator")
    assert "takes another way for other images (line 10)" in violation.message
