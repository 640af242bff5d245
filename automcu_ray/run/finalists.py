"""Which candidates are trained fully next, and which finalists ship."""

from collections.abc import Sequence
from itertools import takewhile
from statistics import median

from automcu_ray.core.feasibility import FeasibilityReport
from automcu_ray.core.objective import Aim
from automcu_ray.problem.task import Task
from automcu_ray.records.finalist_selection import by_promise, rank_for_finals
from automcu_ray.records.record import Finalist, Record

WAVES = 3  # of finalists at most, where none can ship or the cheapest network is sought
_LEAST_ERROR = 0.002  # of a proxy: with fewer mistakes, the ratio says nothing
_NEVER = float("inf")


def next_finalists(
    records: Sequence[Record], done: Sequence[Finalist], task: Task, *, count: int, bundles: int = 1
) -> list[Record]:
    """Return the candidates to train fully next; [] where there are enough.

    The first `count` are those that promise most; with three `bundles`, the fastest, the smallest and the most accurate
    are among them. Where none can ship (too slow with trained weights, or broken), the next ones follow; where the
    cheapest network is sought, others may (`_cheaper`).
    """
    known = {finalist.hash for finalist in done}
    ranked = rank_for_finals(records)
    if bundles > 1:
        ranked = _with_extremes(ranked, task)
    first = [record for record in ranked[:count] if record.candidate.hash not in known]
    if first or len(done) >= WAVES * count:
        return first
    if not any(finalist.usable for finalist in done):
        return [record for record in ranked if record.candidate.hash not in known][:count]
    if task.aim is None:
        return []
    return _cheaper(ranked, done, task.aim)[:count]


def shipped(finalists: Sequence[Finalist], task: Task, *, bundles: int = 1) -> dict[str, Finalist]:
    """Return the finalists that ship by what they are: the `winner` first, perhaps the fastest and others beside it.

    The winner is the cheapest that is accurate enough, or the most accurate one where that is sought, or none is.
    The others have to be accurate enough as well, unless none is.
    """
    usable = [one for one in finalists if one.usable]
    if not usable:
        return {}
    chosen = {"winner": max(usable, key=lambda one: _score(one, task.aim))}
    if bundles == 1:
        return chosen
    enough = [one for one in usable if _accuracy(one) >= (task.floor or 0.0)] or usable
    chosen["fastest"] = min(enough, key=lambda one: _instructions(one.feasibility))
    chosen["smallest"] = min(enough, key=lambda one: _room(one.feasibility, task))
    chosen["most_accurate"] = max(usable, key=_accuracy)
    return chosen


def _with_extremes(ranked: Sequence[Record], task: Task) -> list[Record]:
    """Return the records with the first, the fastest, the smallest and the most accurate one in front."""
    least = 1 - task.proxy_errors * (1 - (task.floor or 0.0))
    enough = [record for record in ranked if record.accuracy >= least] or ranked
    if not enough:
        return []
    fastest = min(enough, key=lambda record: _instructions(record.feasibility))
    smallest = min(enough, key=lambda record: _room(record.feasibility, task))
    accurate = max(enough, key=lambda record: record.accuracy)
    order = [fastest, smallest, accurate, *ranked]
    return list({record.candidate.hash: record for record in order}.values())


def _cheaper(ranked: Sequence[Record], done: Sequence[Finalist], aim: Aim) -> list[Record]:
    """Return who may be cheaper than the best that is accurate enough, or the first to be, the cheapest first.

    Finalists teach how many of a proxy's mistakes remain after full training: by that it is foreseen who will be
    accurate enough. Nobody is taken who promised less than one that fell short. While none is accurate enough and none
    is foreseen to be, the one that promises most is the best that can be tried.
    """
    by_hash = {record.candidate.hash: record for record in ranked}
    tried = [(by_hash[one.hash], _accuracy(one)) for one in done if one.training and one.hash in by_hash]
    if not tried:
        return []
    remains = median((1 - full) / max(_LEAST_ERROR, 1 - record.accuracy) for record, full in tried)
    costs = [cost for record, full in tried if full >= aim.floor and (cost := aim.cost(record.feasibility))]
    failed = {record.candidate.hash for record, full in tried if full < aim.floor}
    promising = takewhile(lambda record: record.candidate.hash not in failed, by_promise(ranked))
    least = 1 - (1 - aim.floor) / max(remains, _LEAST_ERROR)
    known = {finalist.hash for finalist in done}
    better = [
        (cost, record.candidate.number, record)
        for record in promising
        if record.candidate.hash not in known
        if (cost := aim.cost(record.feasibility)) is not None and cost < min(costs, default=_NEVER)
    ]
    hopeful = [row for row in better if row[-1].accuracy >= least]
    if better and not costs and not hopeful:
        hopeful = better[:1]
    return [record for *_, record in sorted(hopeful, key=lambda row: row[:2])]


def _accuracy(finalist: Finalist) -> float:
    return finalist.training.val_accuracy if finalist.training else 0.0


def _score(finalist: Finalist, aim: Aim | None) -> float:
    accuracy = _accuracy(finalist)
    return accuracy if aim is None else aim.score(accuracy, finalist.feasibility, proxy=False)


def _instructions(report: FeasibilityReport | None) -> float:
    return _NEVER if report is None or report.instructions is None else report.instructions


def _room(report: FeasibilityReport | None, task: Task) -> float:
    """Return the shares of RAM and Flash together."""
    if report is None or report.ram_bytes is None or report.flash_bytes is None:
        return _NEVER
    return report.ram_bytes / task.ram_limit_bytes + report.flash_bytes / task.flash_limit_bytes
