"""Near misses mended by the loop: they fit then, and no skip is broken for it."""

from random import Random
from typing import Any

from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.networks.graph import Graph
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from automcu_ray.sizing.footprint import check_bounds, footprint
from automcu_ray.sizing.mending import mended, topology
from tests.searchers.conftest import make_task

RAM_BEYOND, FLASH_BEYOND = 1_200, 9_000


def sizes(task: Task, graph: Graph) -> tuple[int, int]:
    bounds = footprint(graph, task.precision)
    return bounds.ram_lower_bound_bytes + RAM_BEYOND, bounds.flash_lower_bound_bytes + FLASH_BEYOND


def near_miss(spec: ArchitectureSpec, excess: float, *, resource: str = "flash") -> tuple[Task, Record]:
    """A task whose limit a spec exceeds by a share, and the linker's refusal."""
    free = make_task(ram_kb=120, flash_kb=900)
    ram, flash = sizes(free, free.space.graph(spec))
    need = ram if resource == "ram" else flash
    limit = int(need / (1 + excess))
    constraints = free.constraints.replace(**{f"{resource}_kb": limit / 1024})
    task = free.replace(constraints=constraints)
    over = Violation(rung=Rung.LINK, resource=resource, found_bytes=need, limit_bytes=limit, message="overflowed")
    report: dict[str, Any] = {"ram_bytes": ram, "flash_bytes": flash, "violations": (over,), "rung": Rung.LINK}
    feasibility = FeasibilityReport(feasible=False, backend="x", **report)
    candidate = task.space.candidate(spec, number=1)
    return task, Record(candidate=candidate, status="infeasible", feasibility=feasibility)


def read(*layers: dict[str, Any]) -> ArchitectureSpec:
    return ArchitectureSpec.model_validate({"backbone": layers})


def test_layers_that_a_skip_ties_are_narrowed_together() -> None:
    tied = [{"type": "residual", "out_channels": 32} for _ in range(3)]
    task, record = near_miss(read({"type": "conv", "out_channels": 32}, *tied), 0.02)
    found = mended(record, task, check_bounds, lambda graph: None)
    assert found is not None and found.spec is not None and record.candidate.spec is not None
    graph, before = task.space.graph(found.spec), task.space.graph(record.candidate.spec)
    assert topology(graph) == topology(before)
    assert sizes(task, graph)[1] <= task.flash_limit_bytes


def test_most_near_misses_of_random_networks_are_cured_and_none_loses_a_skip() -> None:
    rng, cured, tried = Random(0), 0, 30
    for number in range(tried):
        spec = make_task().space.sample(rng).spec
        assert spec is not None
        task, record = near_miss(spec, rng.uniform(0.001, 0.02), resource=("ram", "flash")[number % 2])
        found = mended(record, task, check_bounds, lambda graph: None)
        if found is None:
            continue
        assert found.spec is not None and found.parent == record.candidate.hash
        graph = task.space.graph(found.spec)
        assert topology(graph) == topology(task.space.graph(spec))
        ram, flash = sizes(task, graph)
        assert ram <= task.ram_limit_bytes and flash <= task.flash_limit_bytes
        cured += 1
    assert cured >= 0.9 * tried


def test_what_is_known_already_is_no_cure() -> None:
    task, record = near_miss(read({"type": "conv", "out_channels": 40}, {"type": "conv", "out_channels": 40}), 0.01)
    first = mended(record, task, check_bounds, lambda graph: None)
    assert first is not None
    second = mended(record, task, check_bounds, lambda graph: None, known={first.hash})
    assert second is not None and second.hash != first.hash


def test_where_nothing_leaves_a_margin_for_other_code_a_change_without_one_is_tried() -> None:
    spec = read(
        {"type": "conv", "out_channels": 4}, {"type": "pointwise", "out_channels": 4}
    )  # some 150 bytes of weights
    task, record = near_miss(spec, 0.002)
    found = mended(record, task, check_bounds, lambda graph: None)
    assert found is not None and found.spec is not None
    assert sizes(task, task.space.graph(found.spec))[1] <= task.flash_limit_bytes
