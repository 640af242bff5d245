"""The gate: asks the ladder's rungs, cheapest first, without ever blocking Tune's loop."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray import tune

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.sizing import footprint, repair
from automcu_ray.sizing.size_model import Estimator
from automcu_ray.sizing.verdict_cache import VerdictCache

MAX_DEATHS = 3  # of workers over one candidate
Verdict = tuple[Candidate, FeasibilityReport]


@dataclass
class _Check:
    """One question to a toolchain actor that has not been answered yet."""

    candidate: Candidate
    worker: str
    started_at_s: float = field(default_factory=time.monotonic)


class Gate:
    """Answers whether a candidate may train: schema, shapes and analytic at once, the toolchain later.

    `workers` are the names of Ray actors with a method `check(candidate) -> FeasibilityReport`; Ray must restart them
    but not repeat their calls, or a hanging one would hang again. Without any, the ladder ends at the analytic rung.
    Each worker has one question at a time, so that none waits behind a slow one, and only the guilty one dies.
    What `estimator` expects refuses nothing: it only tells how much smaller a refused network has to become.
    """

    def __init__(
        self,
        task: Task,
        *,
        workers: Sequence[str] = (),
        check_bounds: repair.BoundCheck = footprint.check_bounds,
        estimator: Estimator | None = None,
        cache: VerdictCache | None = None,
        timeout_s: float = 300.0,
    ) -> None:
        self.task = task
        self.workers = tuple(workers)
        self.check_bounds = check_bounds
        self.estimator = estimator
        self.cache = cache
        self.timeout_s = timeout_s
        self.queue: deque[Candidate] = deque()
        self.deaths: dict[str, int] = {}
        self.asked_again: deque[Candidate] = deque()  # after a worker's death; whoever reads it takes them out
        self._running: dict[Any, _Check] = {}
        self._away: dict[str, tuple[Any, float]] = {}  # workers that died: a sign of life, and how long it is awaited

    @property
    def waiting(self) -> int:
        """How many candidates wait for a verdict."""
        return len(self.queue) + len(self._running)

    def submit(self, candidate: Candidate) -> FeasibilityReport | None:
        """Return the verdict if a rung before the toolchain, or the cache, knows it; else None and `poll` will."""
        report = self._ask_without_tools(candidate)
        if report is None and self.cache is not None:
            report = self.cache.get(candidate.hash)
        if report is None:
            self.queue.append(candidate)
            self._start()
        return report

    def poll(self) -> list[Verdict]:
        """Return the verdicts that have arrived since the last call; never waits."""
        running = list(self._running)
        finished: list[Any] = ray.wait(running, num_returns=len(running), timeout=0)[0] if running else []
        verdicts = [verdict for ref in finished if (verdict := self._answer(ref)) is not None]
        deadline = time.monotonic() - self.timeout_s
        for ref, check in list(self._running.items()):
            if check.started_at_s < deadline:  # it hangs: its actor is killed, and Ray starts it anew
                del self._running[ref]
                ray.kill(_actor(check.worker), no_restart=False)
                self._await(check.worker)
                report = _broken(f"the toolchain gave no verdict within {self.timeout_s:.0f} s")
                verdicts.append((check.candidate, report))
        self._start()
        return verdicts

    def _ask_without_tools(self, candidate: Candidate) -> FeasibilityReport | None:
        if candidate.network is None:
            rung = candidate.violations[0].rung if candidate.violations else Rung.SCHEMA
            return FeasibilityReport(feasible=False, backend="analytic", rung=rung, violations=candidate.violations)
        if candidate.cell is not None and self.task.skeleton is None:  # in a table: there is nothing to build
            return FeasibilityReport(feasible=True, backend="table", rung=Rung.SCHEMA)
        if candidate.structure is None:
            return None if self.workers else _broken("generated code needs a toolchain: this gate has none")
        graph = self.task.graph(candidate.structure)
        violations = self.check_bounds(graph, self.task)
        if not violations and self.workers:
            return None
        found = footprint.footprint(graph, self.task.precision)
        if violations and candidate.spec is not None:  # a cell has no field that could be a little smaller
            violations = repair.before_link(violations, candidate.spec, self.task, self.check_bounds, self.estimator)
        return FeasibilityReport(
            feasible=not violations,
            backend="analytic",
            rung=Rung.ANALYTIC,
            estimate=None if self.estimator is None else self.estimator.estimate(graph, found),
            macs=found.macs,
            parameters=found.parameters,
            violations=violations,
        )

    def _start(self) -> None:
        self._away = {worker: sign for worker, sign in map(self._look, self._away) if sign is not None}
        busy = {check.worker for check in self._running.values()} | self._away.keys()
        for worker in self.workers:
            if self.queue and worker not in busy:
                candidate = self.queue.popleft()
                ref = _actor(worker).check.remote(candidate)
                self._running[ref] = _Check(candidate, worker)

    def _await(self, worker: str) -> None:
        """Ask nothing of a worker that died until it answers: asked while it starts anew, it would seem to die again.

        That takes seconds, or half a minute where its machine has vanished.
        """
        self._away[worker] = (_actor(worker).__ray_ready__.remote(), time.monotonic() + self.timeout_s)

    def _look(self, worker: str) -> tuple[str, tuple[Any, float] | None]:
        """Return a worker that died with the sign of life that is awaited; None where it is back, or late."""
        ref, until_s = self._away[worker]
        if time.monotonic() > until_s:
            return worker, None
        if not ray.wait([ref], timeout=0)[0]:
            return worker, (ref, until_s)
        try:
            ray.get(ref)
        except ray.exceptions.RayActorError:
            return worker, (_actor(worker).__ray_ready__.remote(), until_s)
        return worker, None

    def _answer(self, ref: Any) -> Verdict | None:
        """Return a finished check's verdict, or None where its actor died and the question is asked again."""
        check = self._running.pop(ref)
        candidate = check.candidate
        try:
            report: FeasibilityReport = ray.get(ref)
        except ray.exceptions.RayActorError:
            self._await(check.worker)
            self.deaths[candidate.hash] = self.deaths.get(candidate.hash, 0) + 1
            if self.deaths[candidate.hash] < MAX_DEATHS:
                self.queue.append(candidate)
                self.asked_again.append(candidate)
                return None
            return candidate, _broken(f"the toolchain broke: its process died {MAX_DEATHS} times over this candidate")
        except (ray.exceptions.RayError, ToolchainError) as error:
            said = str(error).strip() or type(error).__name__
            return candidate, _broken(f"the toolchain broke: {said.splitlines()[-1][:200]}")
        # Generated code that ran out of time or memory is not settled: a busy machine alone could be the reason.
        unsettled = any(violation.resource in ("time", "memory", "sandbox") for violation in report.violations)
        if self.cache is not None and not unsettled:
            self.cache.put(candidate.hash, report, candidate.spec)
        return candidate, report

    def __getstate__(self) -> dict[str, Any]:
        """Handles do not survive pickling: what was running is asked again."""
        queue = deque([check.candidate for check in self._running.values()]) + self.queue
        return {**self.__dict__, "queue": queue, "_running": {}, "_away": {}}


class FeasibilityCallback(tune.Callback):  # type: ignore[misc]
    """Drives the gate at every step of Tune's loop, so that checks go on while all slots are training."""

    def __init__(self, searcher: Any) -> None:
        self.searcher = searcher

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self.searcher.pump()


def _broken(message: str) -> FeasibilityReport:
    violation = Violation(rung=Rung.LINK, resource="tool", message=message)
    return FeasibilityReport(feasible=False, backend="toolchain", rung=Rung.LINK, violations=(violation,))


def _actor(name: str) -> Any:
    """Return a worker; one that Ray starts anew for ever is only gone where Ray itself is."""
    try:
        return ray.get_actor(name)
    except ValueError as error:
        raise ray.exceptions.RaySystemError(f"the actor {name} is gone") from error
