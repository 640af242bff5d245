"""The gate against real Ray actors that answer, break, hang and die."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import ray

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import Estimate, FeasibilityReport, Rung
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.graph import Graph
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.sizing import footprint
from automcu_ray.sizing.footprint import Footprint
from automcu_ray.sizing.verdict_cache import VerdictCache
from searchers.gate.gate import Gate, Verdict

GRAPH = Graph((1, 8, 8), ())
REPORT = FeasibilityReport(feasible=True, backend="fake", rung=Rung.LINK, ram_bytes=100, flash_bytes=200)


class FakeToolchain:
    """Acts by the width of the first layer: 4 answers, 6 breaks, 8 hangs, 12 dies."""

    def check(self, candidate: Candidate) -> FeasibilityReport:
        assert candidate.spec is not None
        width: int = candidate.spec.backbone[0].out_channels  # type: ignore[union-attr, assignment]
        if width == 6:
            raise ToolchainError("gcc printed rubbish")
        if width == 8:
            time.sleep(600)
        if width == 12:
            os._exit(1)
        return REPORT


@pytest.fixture(scope="module")
def workers(ray_cluster: None) -> Iterator[list[str]]:
    actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)(FakeToolchain)
    handles = {name: actor.options(name=name).remote() for name in ("fake-0", "fake-1")}
    yield list(handles)
    for handle in handles.values():
        ray.kill(handle)


def candidate(task: Task, width: int, number: int = 1) -> Candidate:
    spec = ArchitectureSpec.model_validate({"backbone": [{"type": "conv", "out_channels": width}]})
    return task.space.candidate(spec, number=number)


def wait(gate: Gate, count: int = 1, timeout_s: float = 240) -> list[Verdict]:
    verdicts: list[Verdict] = []
    deadline = time.monotonic() + timeout_s
    while len(verdicts) < count and time.monotonic() < deadline:
        verdicts += gate.poll()
        time.sleep(0.02)
    return verdicts


def test_answers_come_from_the_toolchain_and_never_block(digits_task: Task, workers: list[str]) -> None:
    gate = Gate(digits_task, workers=workers)
    assert gate.submit(candidate(digits_task, 8)) is None  # hangs
    assert gate.submit(candidate(digits_task, 4, number=2)) is None
    ((found, report),) = wait(gate)
    assert (found.number, report, gate.waiting) == (2, REPORT, 1)


def test_a_hanging_toolchain_costs_one_candidate(digits_task: Task, workers: list[str]) -> None:
    gate = Gate(digits_task, workers=workers[:1], timeout_s=2)
    gate.submit(candidate(digits_task, 8))
    gate.submit(candidate(digits_task, 4, number=2))
    ((_, late),) = wait(gate)
    gate.timeout_s = 240  # a restart takes long on a busy machine
    ((_, fine),) = wait(gate)
    assert "no verdict within 2 s" in late.violations[0].message
    assert (late.violations[0].resource, fine) == ("tool", REPORT)


@pytest.mark.parametrize(("width", "words"), [(6, "gcc printed rubbish"), (12, "the toolchain broke")])
def test_a_toolchain_that_breaks_or_dies_is_a_verdict(
    digits_task: Task, workers: list[str], width: int, words: str
) -> None:
    gate = Gate(digits_task, workers=workers[:1])
    gate.submit(candidate(digits_task, width))
    ((_, report),) = wait(gate)
    assert not report.feasible and words in report.violations[0].message
    gate.submit(candidate(digits_task, 4, number=2))
    assert wait(gate)[0][1] == REPORT


def test_an_error_without_a_text_is_a_verdict_too(
    digits_task: Task, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(ref: object) -> FeasibilityReport:
        raise ToolchainError("")

    gate = Gate(digits_task, workers=workers[:1])
    gate.submit(candidate(digits_task, 4))
    monkeypatch.setattr("searchers.gate.gate.ray.get", silent)
    ((_, report),) = wait(gate)
    assert report.violations[0].message == "the toolchain broke: ToolchainError"


def test_a_verdict_is_asked_for_once(digits_task: Task, workers: list[str], tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path, digits_task, "fake 1")
    gate = Gate(digits_task, workers=workers, cache=cache)
    gate.submit(candidate(digits_task, 4))
    wait(gate)
    again = gate.submit(candidate(digits_task, 4, number=2))
    assert again is not None and again.cached and again.ram_bytes == 100
    other_version = VerdictCache(tmp_path, digits_task, "fake 2")
    assert other_version.get(candidate(digits_task, 4).hash) is None
    assert [(lesson.ram_bytes, lesson.flash_bytes) for lesson in cache.lessons()] == [(100, 200)]


def test_cheap_rungs_answer_without_a_toolchain(digits_task: Task, workers: list[str]) -> None:
    gate = Gate(digits_task, workers=workers)
    too_wide = gate.submit(candidate(digits_task, 1024))
    assert too_wide is not None and too_wide.rung == Rung.ANALYTIC
    assert gate.waiting == 0


def test_a_cell_of_a_table_is_asked_of_no_toolchain(digits_task: Task) -> None:
    on_table = digits_task.model_copy(update={"form": "cell"})
    found = Gate(on_table, workers=["nobody"]).submit(on_table.cells.candidate(["none"] * 6))
    assert found is not None and (found.feasible, found.backend, found.rung) == (True, "table", Rung.SCHEMA)


class Expects:
    """An estimator that knows one size for all networks."""

    def estimate(self, graph: Graph, found: Footprint | None = None) -> Estimate:
        return Estimate(ram_bytes=1, flash_bytes=2, ram_error_bytes=3, flash_error_bytes=4)


def test_an_analytic_refusal_says_what_would_fit_and_what_is_expected(digits_task: Task) -> None:
    expects: Any = Expects()
    gate = Gate(digits_task, workers=("not asked",), estimator=expects)
    refused = gate.submit(candidate(digits_task, 1024))
    assert refused is not None and refused.estimate == Expects().estimate(GRAPH)
    (fix,) = refused.fixes
    assert fix.where == "layer_1.out_channels"
    narrower = candidate(digits_task, int(fix.after))
    assert footprint.check_bounds(digits_task.space.graph(narrower.spec), digits_task) == ()  # type: ignore[arg-type]


def test_an_estimate_refuses_nothing(digits_task: Task) -> None:
    class Pessimist(Expects):
        def estimate(self, graph: Graph, found: Footprint | None = None) -> Estimate:
            return Estimate(ram_bytes=10**9, flash_bytes=10**9, ram_error_bytes=0, flash_error_bytes=0)

    pessimist: Any = Pessimist()
    report = Gate(digits_task, estimator=pessimist).submit(candidate(digits_task, 4))
    assert report is not None and report.feasible


def test_pickling_asks_again_what_was_running(digits_task: Task, workers: list[str]) -> None:
    gate = Gate(digits_task, workers=workers)
    gate.submit(candidate(digits_task, 4, number=7))
    copy: Any = cloudpickle.loads(cloudpickle.dumps(gate))
    assert wait(copy)[0][0].number == 7
    wait(gate)


def test_a_worker_that_is_away_for_long_counts_as_one_death(digits_task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its machine has vanished: Ray needs half a minute to start it elsewhere."""
    asked: list[str] = []

    class Method:
        def __init__(self, name: str) -> None:
            self.name = name

        def remote(self, *about: Any) -> str:
            asked.append(self.name)
            return f"{self.name} {len(asked)}"

    class Worker:
        check = Method("check")
        __ray_ready__ = Method("ready")

    def get(ref: str) -> FeasibilityReport:
        if len(asked) < 8:
            raise ray.exceptions.ActorUnavailableError("it is starting anew", None)
        return REPORT

    monkeypatch.setattr(ray, "get_actor", lambda name: Worker)
    monkeypatch.setattr(ray, "wait", lambda refs, **about: (refs, []))
    monkeypatch.setattr(ray, "get", get)
    gate = Gate(digits_task, workers=["far"])
    assert gate.submit(candidate(digits_task, 4)) is None
    verdicts = [verdict for _ in range(20) for verdict in gate.poll()]
    assert [report.feasible for _, report in verdicts] == [True]
    assert asked == ["check", *["ready"] * 7, "check"]
    assert list(gate.deaths.values()) == [1] and len(gate.asked_again) == 1


def test_a_worker_that_is_gone_for_good_means_that_ray_is(digits_task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own error for it is a ValueError, which said nothing of Ray: a traceback where its raylet had ended."""

    def gone(name: str) -> None:
        raise ValueError(f"Failed to look up actor with name '{name}'.")

    monkeypatch.setattr(ray, "get_actor", gone)
    with pytest.raises(ray.exceptions.RaySystemError, match="far is gone"):
        Gate(digits_task, workers=["far"]).submit(candidate(digits_task, 4))
