"""Print how many near misses the loop cures without asking a model: random networks, linked, a limit just missed.

    python benchmarks/bench_near_misses.py 300

Each network is linked by c_qemu; then its RAM or its Flash is declared to be 0.1 to 2 % too much, the refusal is
written as the toolchain would, mended, and what comes out is linked again within that limit.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport, Rung, over_limit
from automcu_ray.networks import notation
from automcu_ray.problem.target import BYTES_PER_KB
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from automcu_ray.runtime.config import compose
from automcu_ray.sizing import repair
from automcu_ray.sizing.footprint import check_bounds
from automcu_ray.sizing.mending import mended, topology
from backends.toolchain import Toolchain

SHAPES = {"digits": (1, 8, 8), "cifar10": (3, 32, 32)}
LEAST, MOST = 0.001, 0.02
_PROGRESS, _ATTEMPTS = 25, 2


def task_of(dataset: str) -> Task:
    """Return a task with more room than random networks need."""
    about = compose({"task": "digits"})
    constraints = about.constraints.replace(ram_kb=120, flash_kb=900)
    return Task(
        dataset=dataset, input_shape=SHAPES[dataset], num_classes=10, target=about.target, constraints=constraints
    )


def missed(report: FeasibilityReport, resource: str, excess: float, task: Task) -> tuple[Task, FeasibilityReport]:
    """Return the task with a limit that a network just misses, and the linker's refusal with its fixes."""
    need = report.ram_bytes if resource == "ram" else report.flash_bytes
    assert need is not None
    limit = int(need / (1 + excess))
    tight = task.replace(constraints=task.constraints.replace(**{f"{resource}_kb": limit / BYTES_PER_KB}))
    over = over_limit(Rung.LINK, resource, "", need, limit)
    return tight, report.replace(feasible=False, rung=Rung.LINK, violations=(over,))


def cure(record: Record, task: Task, folder: Path) -> str:
    """Return what became of a refusal: as in a run, a fix that is refused is mended once more."""
    assert record.candidate.spec is not None
    before = topology(task.space.graph(record.candidate.spec))
    for attempt in range(1, _ATTEMPTS + 1):
        found = mended(record, task, check_bounds, lambda graph: None)
        if found is None or found.spec is None:
            return "no cure found"
        if topology(task.space.graph(found.spec)) != before:
            return "a skip was broken"
        linked = Toolchain(task, "c_qemu", {}, folder).check(found)
        if linked.feasible:
            return "cured" if attempt == 1 else "cured at the second attempt"
        record = Record(candidate=found.replace(number=attempt + 1), status="infeasible", feasibility=linked)
    return "still too large"


def main(count: int, first: int) -> None:
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, first + count):
            rng = Random(number)
            task = task_of("digits" if number % 4 else "cifar10")
            candidate = task.space.sample(rng)
            assert candidate.spec is not None
            try:
                report = Toolchain(task, "c_qemu", {}, Path(folder)).check(candidate)
            except ToolchainError:
                outcomes["not linked"] += 1
                continue
            if not report.feasible or report.ram_bytes is None or report.flash_bytes is None:
                outcomes["not linked"] += 1  # or larger than the board: no near miss
                continue
            resource = rng.choice(("ram", "flash"))
            tight, refusal = missed(report, resource, rng.uniform(LEAST, MOST), task)
            refusal = repair.after_link(refusal, candidate.spec, tight, check_bounds)
            record = Record(candidate=candidate.replace(number=1), status="infeasible", feasibility=refusal)
            outcomes[found := cure(record, tight, Path(folder))] += 1
            if not found.startswith("cured"):
                print(f"{number}: {found}: {notation.write(candidate.spec)}", flush=True)
            if (number - first) % _PROGRESS == _PROGRESS - 1:
                print(f"{number - first + 1}: {dict(outcomes)}", flush=True)
    misses = sum(outcomes.values()) - outcomes["not linked"]
    cured = outcomes["cured"] + outcomes["cured at the second attempt"]
    print(f"{cured} of {misses} near misses cured ({cured / max(1, misses):.1%}); {dict(outcomes)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
