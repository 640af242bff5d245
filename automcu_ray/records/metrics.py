"""What a run was worth: best feasible accuracy against its cost, first asks that were feasible, hypervolume."""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

from automcu_ray.core.cost import total
from automcu_ray.core.models import FrozenModel
from automcu_ray.records.events import ToolCalled
from automcu_ray.records.record import Record


class Metrics(FrozenModel):
    """Figures of one run, from its records alone; None where nothing was measured.

    `anytime` is the best validation accuracy of a feasible network after each trained candidate, in the order in which
    they finished; None before the first feasible one. It is the int8 network's, as deployed, but for trials that ASHA
    stopped, which have the float network's. As long are `anytime_seconds` (of work since the run began),
    `anytime_tokens` and `anytime_usd`: what had been spent by then.
    `by_engine` are the trained candidates that an engine named: not its fixes and morphs, nor what came in its place.
    `feasible_at_first_ask` is the share of proposals (repeats count, failures of an engine do not) that every rung let
    through. `failure_rate` is the share that was no network, broke, or was trained although it cannot be deployed.
    `hypervolume` is the share of the box (accuracy 0 to 1, RAM and Flash 0 to their limits) that some trained network
    dominates. `hypervolume_of_speed` is that of the rectangle of accuracy and instructions (0 to their limit), where
    these are limited: a figure of its own, so that the other one can be compared between runs with and without.
    """

    proposals: int
    trained: int
    distinct: int
    by_engine: int = 0
    anytime: tuple[float | None, ...]
    anytime_seconds: tuple[float, ...] = ()
    anytime_tokens: tuple[int, ...] = ()
    anytime_usd: tuple[float, ...] = ()
    feasible_at_first_ask: float | None = None
    failure_rate: float | None = None
    hypervolume: float | None = None
    hypervolume_of_speed: float | None = None
    train_seconds: float = 0.0
    tokens: int = 0
    usd: float = 0.0
    calls: int = 0
    failed_calls: int = 0

    @property
    def best(self) -> float | None:
        """The best validation accuracy of a feasible network."""
        return self.anytime[-1] if self.anytime else None


def metrics(
    records: Sequence[Record],
    *,
    ram_limit_bytes: int,
    flash_limit_bytes: int,
    instructions_limit: int | None = None,
    started_at_s: Sequence[float] = (),
    calls: Sequence[ToolCalled] = (),
) -> Metrics:
    """Return the metrics of a run within these limits.

    Args:
        records: in the order in which they finished.
        ram_limit_bytes: of the task.
        flash_limit_bytes: of the task.
        instructions_limit: of the task; None: there is none.
        started_at_s: when the run began, and went on after each time it had been stopped.
        calls: of agents that share a conversation, whose cost no candidate carries.
    """
    talked = total(call.cost for call in calls)
    spent = list(accumulate((record.cost for record in records), initial=total(())))
    trained = [at for at, record in enumerate(records) if record.training is not None]
    asked = [record for record in records if not record.engine_failed]
    boxes = [
        (record.accuracy, 1 - report.least_ram_bytes / ram_limit_bytes, 1 - report.flash_bytes / flash_limit_bytes)
        for record in records
        if record.scored
        if (report := record.feasibility) and report.least_ram_bytes is not None and report.flash_bytes is not None
    ]
    speeds = [
        (record.accuracy, 1 - report.instructions / instructions_limit, 1.0)
        for record in records
        if instructions_limit is not None and record.scored
        if (report := record.feasibility) and report.instructions is not None
    ]
    so_far = accumulate((records[at].accuracy if records[at].scored else -math.inf for at in trained), max)
    fits = [r.status in ("ok", "failed") and r.feasibility is not None and r.feasibility.feasible for r in asked]
    in_vain = [
        r.status in ("invalid", "failed") or (r.status == "infeasible" and r.training is not None) for r in records
    ]
    times = [record.finished_at_s for record in records]
    return Metrics(
        proposals=len(records),
        trained=len(trained),
        distinct=len({record.candidate.hash for record in records if record.candidate.hash}),
        by_engine=sum(records[at].candidate.talk > 0 for at in trained),
        anytime=tuple(None if best == -math.inf else best for best in so_far),
        anytime_seconds=tuple(worked_seconds(times[at], started_at_s, times) for at in trained) if started_at_s else (),
        anytime_tokens=tuple(spent[at + 1].tokens for at in trained),
        anytime_usd=tuple(spent[at + 1].usd for at in trained),
        feasible_at_first_ask=_share(fits),
        failure_rate=_share(in_vain),
        hypervolume=hypervolume(boxes) if boxes else None,
        hypervolume_of_speed=hypervolume(speeds) if speeds else None,
        train_seconds=spent[-1].train_seconds,
        tokens=spent[-1].tokens + talked.tokens,
        usd=spent[-1].usd + talked.usd,
        calls=len(calls),
        failed_calls=sum(bool(call.failure) for call in calls),
    )


def worked_seconds(at_s: float, started_at_s: Sequence[float], finished_at_s: Sequence[float]) -> float:
    """Return the seconds from the first start until `at_s`, without those between a stop and the next start.

    A run that was killed is taken to have worked until its last record.
    """
    begun = [start for start in started_at_s if start <= at_s]
    if not begun:
        return 0.0
    idle = 0.0
    for before, start in pairwise(begun):
        idle += start - max((done for done in finished_at_s if before <= done < start), default=before)
    return at_s - begun[0] - idle


def _share(answers: Sequence[bool]) -> float | None:
    return sum(answers) / len(answers) if answers else None


def hypervolume(points: Sequence[tuple[float, float, float]]) -> float:
    """Return the volume that points in the unit cube dominate towards the origin; all three coordinates are maximised.

    Slices along the first coordinate: between two neighbouring values the cut is the area below a staircase.
    """
    inside = [point for point in points if all(coordinate > 0 for coordinate in point)]
    heights = sorted({point[0] for point in inside})
    volume, below = 0.0, 0.0
    for height in heights:
        area, top = 0.0, 0.0
        for y, z in sorted(((y, z) for x, y, z in inside if x >= height), reverse=True):
            if z > top:
                area += y * (z - top)
                top = z
        volume += (height - below) * area
        below = height
    return volume
