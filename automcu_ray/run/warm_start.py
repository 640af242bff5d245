"""Points of earlier runs for a new one: their best networks, narrowed until they fit here, or their best cells."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice, zip_longest
from math import lcm
from pathlib import Path

from automcu_ray.core.errors import ConfigError
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.records.journal import Repository
from automcu_ray.records.record import Record, pareto_front
from automcu_ray.sizing.footprint import footprint
from automcu_ray.sizing.repair import BoundCheck
from automcu_ray.sizing.size_model import Overhead

WARM_START = "warm_start"  # who proposed such a point
_WIDTHS = 64  # steps of narrowing


def points_of_runs(runs: Sequence[Path], task: Task, check_bounds: BoundCheck, count: int) -> list[Candidate]:
    """Return at most `count` points, none twice: the best of each run, then the second best of each, and so on.

    First come the networks on a run's Pareto front of score, RAM and Flash, then its others, each by score. One
    that is too large here is narrowed, all layers by the same share, until nothing is foreseen against it and it
    leaves room for what code and stack took when it was linked. Generated code is left out.

    Raises:
        ConfigError: no run, an unsound journal, or nothing in it that could be built for this task.
    """
    found: dict[str, Candidate] = {}
    for turn in zip_longest(*(_of_run(path, task, check_bounds, count) for path in runs)):
        for candidate in turn:
            if candidate is not None and len(found) < count:
                found.setdefault(candidate.hash, candidate)
    return list(found.values())


def _of_run(path: Path, task: Task, check_bounds: BoundCheck, count: int) -> list[Candidate]:
    records = [one for one in Repository.of_run(path, "warm_start.runs").records if one.scored]
    front = pareto_front(records)
    known = {record.candidate.number for record in front}
    others = sorted((r for r in records if r.candidate.number not in known), key=lambda record: -record.score)
    fitting = (_fitting(record, task, check_bounds) for record in [*front, *others])
    points = list(islice((candidate for candidate in fitting if candidate is not None), count))
    if not points:
        raise ConfigError(
            f"warm_start.runs: {path} has no trained {task.form} that could be built for this task: leave it out."
        )
    return points


def _fitting(record: Record, task: Task, check_bounds: BoundCheck) -> Candidate | None:
    """Return the record's network as wide as it fits here, or its cell; None where neither can be."""
    cell, spec = record.candidate.cell, record.candidate.spec
    overhead = Overhead.itemized(record.feasibility)
    if task.form == "cell":
        point = None if cell is None else task.cells.candidate_or_none(list(cell.operations), proposer=WARM_START)
        return point if _fits(point, task, check_bounds, overhead) else None
    return None if spec is None else made_to_fit(spec, task, check_bounds, overhead)[0]


def made_to_fit(
    spec: ArchitectureSpec, task: Task, check_bounds: BoundCheck, overhead: Overhead | None, proposer: str = WARM_START
) -> tuple[Candidate | None, float]:
    """Return the network as wide as it fits here, and the share of its channels; None where no width does.

    Without an `overhead` what code and stack take is guessed from the network's operators.
    """

    def fits(step: int) -> bool:
        return _fits(_narrowed(spec, 1 - step / _WIDTHS, task, proposer), task, check_bounds, overhead)

    narrower = bisect_left(range(_WIDTHS), True, key=fits)
    share = 1 - narrower / _WIDTHS
    return (_narrowed(spec, share, task, proposer), share) if narrower < _WIDTHS else (None, 0.0)


def _fits(point: Candidate | None, task: Task, check_bounds: BoundCheck, overhead: Overhead | None) -> bool:
    if point is None or point.structure is None or task.on_table:
        return point is not None
    graph = task.graph(point.structure)
    if check_bounds(graph, task):
        return False
    if task.target.accelerator is not None:  # its tensors and weights are not in the firmware's RAM and Flash
        return True
    expected = (overhead or Overhead.guess(graph)).on_top_of(footprint(graph, task.precision))
    return not expected.exceeds(task.ram_limit_bytes, task.flash_limit_bytes)


def _narrowed(spec: ArchitectureSpec, share: float, task: Task, proposer: str) -> Candidate | None:
    """Return the network with a share of its channels and this task's classes, or None where that cannot be built."""
    layers = [layer.model_dump(exclude={"in_channels"}) for layer in spec.backbone]
    groups = max(layer.get("groups", 1) for layer in layers)
    for layer in layers:
        channels, step = layer.get("out_channels"), layer.get("ratio", 1)  # ghost maps come in such groups
        if channels is not None:
            step = step if channels % groups else lcm(step, groups)  # what comes in groups may read it
            layer["out_channels"] = max(step, int(channels * share) // step * step)
    head = spec.head.model_dump(exclude={"num_classes"})
    return task.space.candidate_or_none({"backbone": layers, "head": head}, proposer=proposer)
