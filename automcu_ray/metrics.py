"""What a run was worth: best feasible accuracy against its cost, first asks that were feasible, hypervolume."""

from collections.abc import Sequence
from itertools import accumulate

from automcu_ray.frozen import Frozen
from automcu_ray.ledger import total
from automcu_ray.record import Record


class Metrics(Frozen):
    """Figures of one run, from its records alone; None where nothing was measured.

    `anytime` is the best validation accuracy after each trained candidate, in the order in which they finished.
    `feasible_at_first_ask` is the share of proposals (repeats count, failures of an engine do not) that every rung let
    through. `hypervolume` is the share of the box (accuracy 0 to 1, RAM and Flash 0 to their limits) that some trained
    network dominates.
    """

    proposals: int
    trained: int
    distinct: int
    anytime: tuple[float, ...]
    feasible_at_first_ask: float | None = None
    hypervolume: float | None = None
    train_seconds: float = 0.0
    tokens: int = 0
    usd: float = 0.0


def metrics(records: Sequence[Record], *, ram_limit_bytes: int, flash_limit_bytes: int) -> Metrics:
    """Return the metrics of a run within these limits."""
    trained = [record for record in records if record.scored]
    spent = total(record.cost for record in records)
    asked = [record for record in records if not record.engine_failed]
    passed = [record for record in asked if record.status in ("ok", "failed") and _fits(record)]
    boxes = [
        (record.score, 1 - report.ram_bytes / ram_limit_bytes, 1 - report.flash_bytes / flash_limit_bytes)
        for record in trained
        if (report := record.feasibility) and report.ram_bytes is not None and report.flash_bytes is not None
    ]
    return Metrics(
        proposals=len(records),
        trained=len(trained),
        distinct=len({record.candidate.hash for record in records if record.candidate.hash}),
        anytime=tuple(accumulate((record.score for record in trained), max)),
        feasible_at_first_ask=len(passed) / len(asked) if asked else None,
        hypervolume=hypervolume(boxes) if boxes else None,
        train_seconds=spent.train_seconds,
        tokens=spent.tokens,
        usd=spent.usd,
    )


def _fits(record: Record) -> bool:
    return record.feasibility is not None and record.feasibility.feasible


def hypervolume(points: Sequence[tuple[float, float, float]]) -> float:
    """Return the volume that points in the unit cube dominate towards the origin; all three coordinates are maximised.

    Slices along the first coordinate: between two neighbouring values the cut is the area below a staircase.
    """
    inside = [point for point in points if all(coordinate > 0 for coordinate in point)]
    heights = sorted({point[0] for point in inside})
    volume, below = 0.0, 0.0
    for height in heights:
        volume += (height - below) * _area([(y, z) for x, y, z in inside if x >= height])
        below = height
    return volume


def _area(points: Sequence[tuple[float, float]]) -> float:
    area, top = 0.0, 0.0
    for y, z in sorted(points, reverse=True):
        if z > top:
            area += y * (z - top)
            top = z
    return area
