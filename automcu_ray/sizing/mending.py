"""Mends a network that was refused by a few bytes: the smallest change that fits and breaks no skip connection."""

from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import Any

from automcu_ray.core.feasibility import Estimate, Rung
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.graph import Graph
from automcu_ray.networks.search_space import without_derived
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from automcu_ray.sizing.footprint import footprint
from automcu_ray.sizing.instruction_model import model_for
from automcu_ray.sizing.repair import BoundCheck, smallest_change
from automcu_ray.sizing.size_model import Overhead

_MOST_STEPS = 16  # channels that a group of layers may lose
_MARGINS_BYTES = ((32, 192), (0, 0))  # of RAM and Flash: other widths make other code, by so much in most networks
_SHARES = 32  # of all widths, where no single group is enough
_KEEPS_WIDTH = ("residual", "bottleneck", "mbconv", "depthwise", "max_pool", "avg_pool")


Expect = Callable[[Graph], Estimate | None]


def mended(
    record: Record, task: Task, check_bounds: BoundCheck, expect: Expect, known: Collection[str] = ()
) -> Candidate | None:
    """Return a spec that should fit in place of a refused one, None where no small change does.

    First the fixes that the refusal names, then the smallest change of one field, then layers that a skip ties, all
    narrowed together, then all layers by one share; where none of these leaves a margin for other code, those without.
    Each has to keep all operators but their widths: what loses a skip, or gets a projection in place of one, is another
    network and no fix.

    Args:
        record: the refusal.
        task: what is searched for.
        check_bounds: the analytic rung.
        expect: the sizes of a network, where this one was not measured itself.
        known: hashes of networks that were proposed before.
    """
    candidate, report = record.candidate, record.feasibility
    if candidate.spec is None or report is None:
        return None
    before = task.space.graph(candidate.spec)
    for margin in _MARGINS_BYTES:
        measured = _measured(record, before, task, margin)
        if (found := _smallest(record, task, check_bounds, measured or expect, known)) or measured is None:
            return found
    return None


def _smallest(
    record: Record, task: Task, check_bounds: BoundCheck, expect: Expect, known: Collection[str]
) -> Candidate | None:
    """Return the smallest change after which a network is expected to fit."""
    candidate, report, space = record.candidate, record.feasibility, task.space
    assert candidate.spec is not None and report is not None
    before = space.graph(candidate.spec)

    def fits(graph: Graph) -> bool:
        if topology(graph) != topology(before) or check_bounds(graph, task):
            return False
        limits = task.ram_limit_bytes, task.flash_limit_bytes, task.instructions_limit
        expected = expect(graph)
        return expected is None or not expected.exceeds(*limits)

    def sound(found: Candidate | None) -> bool:
        return (
            found is not None and found.hash not in known and found.spec is not None and fits(space.graph(found.spec))
        )

    named = space.changed(candidate, report.fixes) if report.fixes else None
    if sound(named):
        return named
    if change := smallest_change(candidate.spec, space, fits):
        found = space.changed(candidate, [change])
        if sound(found):
            return found
    return next((found for found in chain(_narrowed(candidate, task), _scaled(candidate, task)) if sound(found)), None)


def topology(graph: Graph) -> tuple[object, ...]:
    """Return what two networks share that differ in widths, kernels and strides alone: skips and projections show."""
    return tuple((op.kind, op.inputs, op.groups > 1) for op in graph.ops)


def _measured(record: Record, before: Graph, task: Task, margin: tuple[int, int]) -> Expect | None:
    """Return how the sizes of a changed network follow from what this one measured; None where it was not linked."""
    report = record.feasibility
    assert report is not None
    overhead = None if report.rung is Rung.ANALYTIC else Overhead.measured(report, footprint(before, task.precision))
    if overhead is None:
        return None
    model = model_for(task).scaled_to(before, report.instructions) if report.instructions else None

    def expected(graph: Graph) -> Estimate:
        sizes = overhead.on_top_of(footprint(graph, task.precision), error=margin)
        return sizes if model is None else sizes.replace(instructions=model.estimate(graph))

    return expected


def _narrowed(candidate: Candidate, task: Task) -> Iterator[Candidate | None]:
    """Yield the candidate with ever narrower groups of layers, the widest group first, least changed ones first."""
    assert candidate.spec is not None
    groups = sorted(_groups(candidate.spec), key=lambda group: -_width(candidate.spec, group))
    for step in range(1, _MOST_STEPS + 1):
        for group in groups:
            yield _narrower(candidate, group, step, task)


def _scaled(candidate: Candidate, task: Task) -> Iterator[Candidate | None]:
    """Yield the candidate with a share of all widths, the widest first."""
    assert candidate.spec is not None
    for step in range(1, _SHARES):
        backbone = without_derived(candidate.spec).model_dump(mode="json", exclude_none=True)["backbone"]
        for layer in backbone:
            if "out_channels" in layer:
                ratio = layer.get("ratio", 1)
                layer["out_channels"] = max(1, layer["out_channels"] * (_SHARES - step) // _SHARES // ratio) * ratio
        yield _with(candidate, backbone, task)


def _with(candidate: Candidate, backbone: list[dict[str, Any]], task: Task) -> Candidate | None:
    assert candidate.spec is not None
    spec = candidate.spec.model_dump(mode="json", exclude={"backbone"}) | {"backbone": backbone}
    return task.space.candidate_or_none(spec, parent=candidate.hash)


def _groups(spec: ArchitectureSpec) -> list[list[int]]:
    """Return the layers whose widths skips tie together: a layer, and the blocks behind it that keep its width."""
    groups: list[list[int]] = []
    width = None
    for at, layer in enumerate(spec.backbone):
        own = getattr(layer, "out_channels", None)
        if own is None:
            continue  # its width is that of the layer before
        tied = layer.type in _KEEPS_WIDTH and own == width and getattr(layer, "stride", 1) == 1
        if tied and groups:
            groups[-1].append(at)
        else:
            groups.append([at])
        width = own
    return groups


def _width(spec: ArchitectureSpec | None, group: list[int]) -> int:
    width: int = getattr(spec.backbone[group[0]], "out_channels", 0) if spec is not None else 0
    return width


def _narrower(candidate: Candidate, group: list[int], step: int, task: Task) -> Candidate | None:
    assert candidate.spec is not None
    backbone = without_derived(candidate.spec).model_dump(mode="json", exclude_none=True)["backbone"]
    ratio = max(backbone[at].get("ratio", 1) for at in group)
    width = backbone[group[0]]["out_channels"] - step * ratio
    if width < ratio:
        return None
    for at in group:
        backbone[at]["out_channels"] = width
    return _with(candidate, backbone, task)
