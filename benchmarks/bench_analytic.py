"""The analytic rung against the linker: its speed, whether its bounds hold, how far its estimates and fixes are off.

    python benchmarks/bench_analytic.py [SPECS]

Random specs of the space for 32x32 colour images are linked, SPECS (500) for the first core and a fifth of that for the
others. Each half is estimated by what the other half teaches, so no network is estimated by its own size.
"""

import functools
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track

from automcu_ray.core.feasibility import Change, FeasibilityReport, Rung, Violation
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.lowering import lower
from automcu_ray.networks.spec import MAX_LAYERS, ArchitectureSpec
from automcu_ray.problem.precision import Precision
from automcu_ray.problem.target import BYTES_PER_KB, Constraints, McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config_files import CONFIGS, read_yaml
from automcu_ray.sizing import repair
from automcu_ray.sizing.footprint import check_bounds, footprint
from automcu_ray.sizing.size_model import Estimator, learn
from automcu_ray.sizing.verdict_cache import Lesson
from backends.toolchain import Toolchain
from searchers.gate.gate import Gate

SPECS = 500
PROCESSES = 2
FIXES = 100
REFUSALS = 500
CASES: tuple[tuple[str, Precision], ...] = (("stm32f405", "int8"), ("stm32f405", "float32"), ("rp2040", "int8"))


class Linked(NamedTuple):
    """A spec and what the linker made of it."""

    spec: ArchitectureSpec
    report: FeasibilityReport

    @property
    def sizes(self) -> tuple[int, int]:
        """RAM that it needs and Flash, in bytes."""
        ram_bytes, flash_bytes = self.report.least_ram_bytes, self.report.flash_bytes
        assert ram_bytes is not None and flash_bytes is not None, "the linker measures both"
        return ram_bytes, flash_bytes


def main(specs: int) -> None:
    """Print all figures."""
    speed(make_task(*CASES[0]))
    for (target, precision), count in zip(CASES, (specs, specs // 5, specs // 5), strict=True):
        task = make_task(target, precision)
        print(f"\n{task.target.core}, {precision} ({count} specs)")
        linked = link_all(task, count)
        bounds(task, linked)
        first, second = linked[::2], linked[1::2]
        taught = (teach(task, second), teach(task, first))
        estimates(task, [(one, taught[0]) for one in first] + [(one, taught[1]) for one in second], len(second))
        fixes(task, linked[:FIXES], taught[0], after=True)
        fixes(task, first[:FIXES], taught[0], after=False)


def make_task(target: str, precision: Precision) -> Task:
    """Return the task that specs are drawn for."""
    board = McuTarget.model_validate(read_yaml(CONFIGS / "target" / f"{target}.yaml"))
    task = Task(dataset="none", input_shape=(3, 32, 32), num_classes=10, target=board, constraints=Constraints())
    return task.replace(precision=precision)


def speed(task: Task, count: int = 3000) -> None:
    """Print specs per second of one core, each seen for the first time."""
    rng = Random(1)
    specs = [spec_of(task.space.sample(rng)) for _ in range(count)]
    lower.cache_clear()
    start = time.process_time()
    for spec in specs:
        check_bounds(task.space.graph(spec), task)
    print(f"analytic rung: {count / (time.process_time() - start):,.0f} specs per CPU second ({count} random specs)")
    gate = Gate(task.replace(constraints=Constraints(ram_kb=16, flash_kb=64)))
    pruning = [spent for spec in specs[:REFUSALS] if (spent := refusal_ms(gate, spec)) is not None]
    worst = {"type": "mbconv", "out_channels": 256, "expansion": 6, "se_ratio": 0.25, "kernel_size": 5}
    deepest = refusal_ms(gate, ArchitectureSpec.model_validate({"backbone": [worst] * MAX_LAYERS}))
    middle, high = np.percentile(pruning, (50, 95))
    print(
        f"refused in the gate, with fix: {middle:.1f} CPU ms, 95th percentile {high:.1f}, largest {max(pruning):.1f} "
        f"({len(pruning)} specs, 16 KB RAM, 64 KB Flash); {MAX_LAYERS} mbconv layers {deepest:.1f}"
    )


def refusal_ms(gate: Gate, spec: ArchitectureSpec) -> float | None:
    """Return the CPU ms that the gate takes to refuse a spec, None where it does not."""
    candidate = gate.task.space.candidate(spec)
    start = time.process_time()
    report = gate.submit(candidate)
    return None if report is None or report.feasible else 1000 * (time.process_time() - start)


def link_all(task: Task, count: int) -> list[Linked]:
    """Return random specs with their reports; the linker measures what does not fit as well."""
    rng = Random(0)
    specs = [spec_of(task.space.sample(rng)) for _ in range(count)]
    reports = in_processes([(task, spec) for spec in specs], f"{task.target.core} {task.precision}")
    linked = [Linked(spec, one) for spec, one in zip(specs, reports, strict=True) if one.rung != Rung.CONVERT]
    if refused := [one.violations[0].message for one in reports if one.rung == Rung.CONVERT]:
        print(f"  left out, for they were not converted: {len(refused)} ({refused[0][:100]})")
    return linked


def in_processes(jobs: Sequence[tuple[Task, ArchitectureSpec]], what: str) -> list[FeasibilityReport]:
    """Return the toolchain's reports, in order."""
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        results = pool.map(link, *zip(*jobs, strict=True))
        return list(track(results, f"linking, {what}", total=len(jobs), console=Console(stderr=True)))


def link(task: Task, spec: ArchitectureSpec) -> FeasibilityReport:
    """Return the report of the process's own toolchain."""
    toolchain = _toolchain(task.target.name, task.precision)
    with tempfile.TemporaryDirectory(prefix="bench-analytic-") as folder:
        toolchain.task, toolchain.folder = task, Path(folder)
        return toolchain.check(task.space.candidate(spec))


@functools.cache
def _toolchain(target: str, precision: Precision) -> Toolchain:
    return Toolchain(make_task(target, precision), "c_qemu", {}, Path())


def bounds(task: Task, linked: Sequence[Linked]) -> None:
    """Print whether the lower bounds hold, and how much of the linked size they are."""
    least = [footprint(task.space.graph(one.spec), task.precision) for one in linked]
    found = np.array([(one.ram_lower_bound_bytes, one.flash_lower_bound_bytes) for one in least])
    sizes = np.array([one.sizes for one in linked])
    print(f"  specs whose bound is above the linked size: {int((found > sizes).any(axis=1).sum())} of {len(linked)}")
    for name, ratio in zip(("RAM", "Flash"), (found / sizes).T, strict=True):
        low, middle = np.percentile(ratio, (5, 50))
        print(f"  {name} bound / linked: median {middle:.3f}, 5th percentile {low:.3f}")


def teach(task: Task, linked: Sequence[Linked]) -> Estimator:
    """Return what verdicts teach."""
    lessons = [Lesson(spec=one.spec, ram_bytes=one.sizes[0], flash_bytes=one.sizes[1]) for one in linked]
    estimator = learn(lessons, task)
    assert estimator is not None, "too few specs"
    return estimator


def estimates(task: Task, pairs: Sequence[tuple[Linked, Estimator]], taught_by: int) -> None:
    """Print the errors of estimates for networks that the estimator has not seen."""
    graphs = [task.space.graph(one.spec) for one, _ in pairs]
    found = [footprint(graph, task.precision) for graph in graphs]
    start = time.process_time()
    made = [estimator.estimate(graph, least) for (_, estimator), graph, least in zip(pairs, graphs, found, strict=True)]
    each_ms = 1000 * (time.process_time() - start) / len(pairs)
    known = [(one.sizes, guess) for (one, _), guess in zip(pairs, made, strict=True) if guess is not None]
    sizes = np.array([size for size, _ in known])
    guesses = np.array([(guess.ram_bytes, guess.flash_bytes) for _, guess in known])
    print(f"  estimates by {taught_by} other verdicts, {each_ms:.2f} ms each; none for {len(pairs) - len(known)} specs")
    for name, error in zip(("RAM", "Flash"), (100 * np.abs(guesses - sizes) / sizes).T, strict=True):
        middle, high = np.percentile(error, (50, 95))
        print(
            f"  {name} estimate: median error {middle:.2f} %, 95th percentile {high:.2f} %, largest {error.max():.2f} %"
        )


def fixes(task: Task, linked: Sequence[Linked], estimator: Estimator, *, after: bool) -> None:
    """Print how many refused networks link once their fix is made: refused by the linker, or by the analytic rung."""
    rng, refused, seconds = Random(2), [], list[float]()
    for one in linked:
        sizes = one.sizes
        if not after:
            least = footprint(task.space.graph(one.spec), task.precision)
            sizes = least.ram_lower_bound_bytes, least.flash_lower_bound_bytes
        tight = limited(task, sizes, rng)
        start = time.process_time()
        refused.append((one.spec, tight, fix(one, tight, estimator, after=after)))
        seconds.append(time.process_time() - start)
    cured = [(tight, changed(spec, change)) for spec, tight, change in refused if change is not None]
    reports = in_processes(cured, "what was fixed")
    fit = sum(report.feasible for report in reports)
    middle, high = 1000 * np.percentile(seconds, (50, 95))
    rung = "linker" if after else "analytic rung"
    print(
        f"  refused by the {rung}: {len(cured)} of {len(refused)} have one change that cures all, {fit} of these link "
        f"({fit / max(1, len(cured)):.0%}); {middle:.1f} CPU ms a refusal, 95th percentile {high:.1f}"
    )


def limited(task: Task, sizes: tuple[int, int], rng: Random) -> Task:
    """Return the task on a roomy board with limits that RAM, Flash or both exceed, by 1 to 40 % of what is needed."""
    over = rng.choice(((True, False), (False, True), (True, True)))
    kb = [
        size * rng.uniform(0.6, 0.99) / BYTES_PER_KB if tight else None for size, tight in zip(sizes, over, strict=True)
    ]
    name, region = next(iter(task.target.ram.items()))
    ram, flash = {name: region.replace(size_kb=16384.0)}, task.target.flash.replace(size_kb=65536.0)
    limits = Constraints(ram_kb=kb[0], flash_kb=kb[1])
    return task.replace(target=task.target.replace(ram=ram, flash=flash), constraints=limits)


def fix(one: Linked, task: Task, estimator: Estimator, *, after: bool) -> Change | None:
    """Return the change that should cure all violations, if there is a single one."""
    if after:
        limits = zip(("ram", "flash"), one.sizes, (task.ram_limit_bytes, task.flash_limit_bytes), strict=True)
        over = tuple(
            Violation(rung=Rung.LINK, resource=resource, found_bytes=size, limit_bytes=limit, message="")
            for resource, size, limit in limits
            if size > limit
        )
        report = one.report.replace(violations=over)
        violations = repair.after_link(report, one.spec, task, check_bounds).violations
    else:
        refused = check_bounds(task.space.graph(one.spec), task)
        violations = repair.before_link(refused, one.spec, task, check_bounds, estimator)
    changes = {violation.fix for violation in violations}
    return changes.pop() if len(changes) == 1 else None


def changed(spec: ArchitectureSpec, change: Change) -> ArchitectureSpec:
    """Return the spec with the change made."""
    whole = {"head": {}} | spec.compact()
    layers = [{k: v for k, v in layer.items() if k != "in_channels"} for layer in whole["backbone"]]
    layer, field = change.where.split(".")
    part = whole["head"] if layer == "head" else layers[int(layer.removeprefix("layer_")) - 1]
    part[field] = change.after
    return ArchitectureSpec.model_validate({"backbone": layers, "head": whole["head"]})


def spec_of(candidate: Candidate) -> ArchitectureSpec:
    """Return the spec of a sampled candidate."""
    assert candidate.spec is not None
    return candidate.spec


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SPECS)
