"""Near misses: how far refused candidates are beyond their limits, which come closest, and what would have to give."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from automcu_ray.core.feasibility import Rung, Violation
from automcu_ray.problem.target import BYTES_PER_KB
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record

SHOWN = 3  # near misses for each resource
Resource = Literal["ram", "flash", "instructions"]
TITLES: dict[str, str] = {"ram": "RAM", "flash": "Flash", "instructions": "instructions"}


def amount(resource: str, count: int) -> str:
    """Return an amount of a resource in words: `1,024 bytes of RAM`, `20,000 instructions`."""
    title = TITLES.get(resource, resource)
    return f"{count:,} {title}" if resource == "instructions" else f"{count:,} bytes of {title}"


class Size(NamedTuple):
    """Bytes of RAM or Flash, or instructions; `at_least` where a rung before the linker knows a lower bound only."""

    amount: int
    at_least: bool

    @property
    def rank(self) -> tuple[bool, int]:
        """What sizes are compared by: measured ones come before lower bounds, then the least."""
        return self.at_least, self.amount


def limits(task: Task) -> dict[Resource, int]:
    """Return a task's limits in bytes, and in instructions where they are limited."""
    sizes: dict[Resource, int] = {"ram": task.ram_limit_bytes, "flash": task.flash_limit_bytes}
    return sizes if task.instructions_limit is None else {**sizes, "instructions": task.instructions_limit}


def known_size(record: Record, resource: Resource) -> Size | None:
    """Return what a candidate needs of a resource, or None where nobody found out."""
    report = record.feasibility
    if report is None:
        return None
    totals = {"ram": report.ram_bytes, "flash": report.flash_bytes, "instructions": report.instructions}
    if (total := totals[resource]) is not None:
        return Size(total, at_least=False)
    found = [v.found for v in report.violations if v.resource == resource and v.found is not None]
    return Size(max(found), at_least=report.rung is Rung.ANALYTIC) if found else None


def shortages(record: Record) -> dict[str, Violation]:
    """Return the worst violation of each resource by its name; empty unless amounts alone kept the candidate out."""
    report = record.feasibility
    if record.status != "infeasible" or report is None:
        return {}
    worst = {v.resource: v for v in sorted(report.violations, key=lambda v: v.over or 0)}
    return worst if all((v.over or 0) > 0 and v.limit for v in worst.values()) else {}


def excess(record: Record) -> float | None:
    """Return how far a refused record is beyond its limits: the sum over resources of the share of the limit.

    None unless amounts alone kept it out. The shares make RAM and Flash, whose limits differ, one question.
    """
    found = shortages(record).values()
    return sum((v.over or 0) / (v.limit or 1) for v in found) if found else None


def nearest_misses(records: Sequence[Record], resource: str | None = None) -> list[Record]:
    """Return the three refused records with the least excess, of all or of those short of `resource`, nearest first.

    Those that a toolchain has measured come before those of which lower bounds alone are known: these only seem near.
    Equal networks count once.
    """
    sized = [
        (record.feasibility is not None and record.feasibility.rung is Rung.ANALYTIC, size, record)
        for record in records
        if (size := excess(record)) is not None and (resource is None or resource in shortages(record))
    ]
    distinct: dict[str, Record] = {}
    for *_, record in sorted(sized, key=lambda row: row[:2]):
        distinct.setdefault(record.candidate.hash or str(record.candidate.number), record)
    return list(distinct.values())[:SHOWN]


def least_needs(records: Sequence[Record], task: Task) -> list[str]:
    """Return a sentence for each resource of which every proposal needed too much: the least need, and the way out.

    The least is of those that were measured, where there are any. Where a proposal fitted, sizes are not to blame.
    """
    if any(record.feasibility is not None and record.feasibility.feasible for record in records):
        return []
    lines = []
    for resource, limit in limits(task).items():
        sizes = [(size, r.candidate.number) for r in records if (size := known_size(r, resource)) is not None]
        if sizes and min(size.amount for size, _ in sizes) > limit:
            (least, at_least), number = min(sizes, key=lambda pair: pair[0].rank)
            need = f"at least {least:,}" if at_least else f"{least:,}"
            unit = " bytes" if resource != "instructions" else ""
            said = f"the least {TITLES[resource]} of any proposal is {need}{unit} (#{number}), the limit is {limit:,}"
            lines.append(f"{said}: {way_out(task, resource, least)}")
    return lines


def by_resource(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the nearest misses of each resource that some candidate was short of, RAM and Flash first."""
    short = {resource for record in records for resource in shortages(record)}
    known = [resource for resource in TITLES if resource in short]
    return {resource: nearest_misses(records, resource) for resource in [*known, *sorted(short - {*known})]}


def advice(violation: Violation, task: Task) -> str:
    """Return what would have to give for one shortage to go away."""
    where = f"shrink {violation.where}" if violation.where else "shrink the network"
    where = f"try {violation.fix}" if violation.fix else where
    if violation.resource == "instructions":
        way = way_out(task, "instructions", violation.found or 0)
        return f"{violation.over or 0:,} instructions over: {where}, or {way}"
    over = f"{violation.over_bytes or 0:,} bytes over: {where}"
    if violation.resource not in TITLES:  # a memory of an accelerator: no constraint limits it
        return f"{violation.resource} is {over}"
    least = "at least " if violation.rung is Rung.ANALYTIC else ""
    resource: Resource = "ram" if violation.resource == "ram" else "flash"
    return f"{TITLES[resource]} is {least}{over}, or {way_out(task, resource, violation.found_bytes or 0)}"


def way_out(task: Task, resource: Resource, need: int) -> str:
    """Return what a user can change so that a network fits which needs that much of a resource."""
    if resource == "instructions":
        latency_ms = task.target.latency_ms(need)
        if task.constraints.instructions_m is None and latency_ms is not None:
            return f"set constraints.latency_ms={math.ceil(latency_ms)}"
        return f"set constraints.instructions_m={math.ceil(need / 1e4) / 100:g}"
    region = task.target.main_ram if resource == "ram" else task.target.flash
    if need > region.size_bytes:
        return f"take a larger target ({task.target.name} has {region.size_kb:,g} KB)"
    return f"set constraints.{resource}_kb={math.ceil(need / BYTES_PER_KB)}"
