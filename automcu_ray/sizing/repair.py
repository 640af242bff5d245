"""What would make a refused spec fit: the smallest change of one field, where a single one does."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

from pydantic import ValidationError

from automcu_ray.core.feasibility import Change, Estimate, FeasibilityReport, Violation
from automcu_ray.networks.graph import ConstructibilityError, Graph
from automcu_ray.networks.search_space import Space, without_derived
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.sizing.footprint import footprint
from automcu_ray.sizing.instruction_model import model_for
from automcu_ray.sizing.size_model import Estimator, Overhead

BoundCheck = Callable[[Graph, Task], tuple[Violation, ...]]

BUDGET_OPS = 5_000  # of one refusal's fixes; at about 4 us an operator, some 20 to 30 ms
_TRIAL_OPS = 50  # what reading a changed spec costs, in operators, whatever its size
_KERNELS = (7, 5, 3, 1)
_GROUPS = (2, 4, 8)
_LARGEST_WINDOW = 8
_FEW = 6  # windows: one too large for its image is no reason to give up the others
_STEPS = {"expansion": 0.1, "se_ratio": 0.05}  # steps that people would write down
_LOWEST = {"expansion": 0.1, "se_ratio": 0.0}


class _Field(NamedTuple):
    """A field of a layer, or of the head behind the last one, with values that may make the network smaller.

    They begin with the smallest change.
    """

    layer: int
    name: str
    before: int | float
    values: Sequence[int | float]

    def size(self, after: int | float) -> float:
        """Return how large a change is, as a share of what was there before."""
        return abs(after - self.before) / self.before


def smallest_change(
    spec: ArchitectureSpec, space: Space, fits: Callable[[Graph], bool], budget_ops: int = BUDGET_OPS
) -> Change | None:
    """Return the smallest change of one field after which the network fits, or None where no single one does.

    Smallest is the share of the field's own value; among equals the network with the most parameters, then MACs, is
    left. Widths are bisected: a network that is narrower in one place is taken to need no more of anything. Large
    networks exhaust the budget: then it is the smallest of those found, the largest layers having been tried first.
    The budget counts operators looked at, and not time, so that the result does not depend on how busy the machine is.
    """
    layers: list[dict[str, Any]] = without_derived(spec).compact()["backbone"]
    parts = [*layers, spec.head.model_dump(exclude_defaults=True)]
    fitting: dict[tuple[int, str, int | float], Graph] = {}
    left_ops = budget_ops

    def passes(field: _Field, value: int | float) -> bool:
        """Return whether the network fits with one field changed; False once the budget is spent."""
        nonlocal left_ops
        if left_ops <= 0:
            return False
        changed = parts.copy()
        changed[field.layer] = {**parts[field.layer], field.name: value}
        *backbone, head = changed
        left_ops -= _TRIAL_OPS
        try:
            graph = space.graph(ArchitectureSpec.model_validate({"backbone": backbone, "head": head}))
        except (ValidationError, ConstructibilityError):
            left_ops -= len(layers)
            return False
        left_ops -= len(graph.ops)
        if fits(graph):
            fitting[field.layer, field.name, value] = graph
            return True
        return False

    best: tuple[float, int, int] | None = None
    change = None
    for field in _fields(spec, space.graph(spec)):
        values = [value for value in field.values if best is None or field.size(value) <= best[0]]
        if len(values) <= _FEW:
            after = next((value for value in values if passes(field, value)), None)
        elif passes(field, values[-1]):
            after = values[bisect_left(values, True, hi=len(values) - 1, key=partial(passes, field))]
        else:
            after = None
        if after is None:
            continue
        graph = fitting[field.layer, field.name, after]
        rank = (field.size(after), -sum(op.weights for op in graph.ops), -sum(op.macs for op in graph.ops))
        if best is None or rank < best:
            where = f"layer_{field.layer + 1}" if field.layer < len(layers) else "head"
            where = f"{where}.{field.name}"
            best, change = rank, Change(where=where, before=field.before, after=after)
    return change


def before_link(
    violations: tuple[Violation, ...],
    spec: ArchitectureSpec,
    task: Task,
    check_bounds: BoundCheck,
    estimator: Estimator | None,
) -> tuple[Violation, ...]:
    """Return an analytic refusal's violations with fixes that pass the bounds and, where there is one, the estimate.

    Without an estimate a toolchain may still refuse what passes the bounds.
    """
    return _with_fixes(violations, spec, task, check_bounds, estimator.estimate if estimator else lambda graph: None)


def after_link(
    report: FeasibilityReport, spec: ArchitectureSpec, task: Task, check_bounds: BoundCheck
) -> FeasibilityReport:
    """Return a toolchain's report with fixes that fit if a changed network has the overhead that was measured.

    One field changes few operators, so the overheads of both networks are all but equal. The estimator is not asked:
    equal verdicts have to give equal fixes in every run, whatever other runs have learned meanwhile.
    """
    sized = tuple(violation for violation in report.violations if violation.over is not None)
    graph = task.space.graph(spec)
    overhead = Overhead.measured(report, footprint(graph, task.precision)) if sized else None
    if overhead is None:
        return report
    model = model_for(task).scaled_to(graph, report.instructions) if report.instructions else None

    def expect(graph: Graph) -> Estimate:
        sizes = overhead.on_top_of(footprint(graph, task.precision))
        return sizes if model is None else sizes.replace(instructions=model.estimate(graph))

    fixed = dict(zip(sized, _with_fixes(sized, spec, task, check_bounds, expect), strict=True))
    violations = tuple(fixed.get(violation, violation) for violation in report.violations)
    return report.replace(violations=violations)


def _with_fixes(
    violations: tuple[Violation, ...],
    spec: ArchitectureSpec,
    task: Task,
    check_bounds: BoundCheck,
    expect: Callable[[Graph], Estimate | None],
) -> tuple[Violation, ...]:
    """Return the violations with one change that cures all of them, else with one for each resource, or None.

    A change cures a resource where neither the bounds nor the expected size, if there is one, exceed its limit.
    """

    def exceeded(graph: Graph) -> set[str]:
        found = {violation.resource for violation in check_bounds(graph, task)}
        expected = expect(graph)
        limits = task.ram_limit_bytes, task.flash_limit_bytes, task.instructions_limit
        return found | expected.exceeds(*limits) if expected else found

    asked = sorted({violation.resource for violation in violations})
    share = BUDGET_OPS // (1 if len(asked) == 1 else 1 + len(asked))

    def fix(tolerated: set[str]) -> Change | None:
        return smallest_change(spec, task.space, lambda graph: exceeded(graph) <= tolerated, share)

    fixes = dict.fromkeys(asked, fix(set()))
    if len(asked) > 1 and fixes[asked[0]] is None:
        fixes = {resource: fix({*asked} - {resource}) for resource in asked}
    return tuple(violation.replace(fix=fixes[violation.resource]) for violation in violations)


def _fields(spec: ArchitectureSpec, graph: Graph) -> Iterator[_Field]:
    """Yield every numeric field that can make a network smaller, those of its largest layers first.

    A layer's size is its share of the weights plus that of its largest tensor in the largest of all.
    """
    parts = (*spec.backbone, spec.head)
    count = len(parts)
    weights, tensors = [0] * count, [0] * count
    for op in graph.ops:
        layer_name = op.name.partition(".")[0]
        at = -1 if layer_name == "head" else int(layer_name.removeprefix("layer_")) - 1
        weights[at] += op.weights
        tensors[at] = max(tensors[at], prod(op.shape))
    all_weights, largest = max(1, sum(weights)), max(tensors)
    for at in sorted(range(count), key=lambda at: -(weights[at] / all_weights + tensors[at] / largest)):
        layer = parts[at]
        for name, value in layer:
            if name != "in_channels" and isinstance(value, int | float) and value > 0:
                values = _values(layer.type, name, value, getattr(layer, "ratio", 1))
                if values:
                    yield _Field(at, name, value, values)


def _values(kind: str, name: str, before: int | float, ratio: int) -> Sequence[int | float]:
    pool = kind in ("max_pool", "avg_pool")
    if name == "out_channels":
        return range(int(before) - ratio, 0, -ratio)
    if name in ("expansion", "se_ratio"):
        step, lowest = _STEPS[name], 1.0 if kind == "mbconv" and name == "expansion" else _LOWEST[name]
        steps = range(round(before / step), -1, -1)
        return [value for value in (round(times * step, 2) for times in steps) if lowest <= value < before]
    if name in ("kernel_size", "dw_size") and not pool:
        return [size for size in _KERNELS if size < before]
    if name == "stride" and not pool:
        return [2] if before == 1 else []
    if name == "groups":
        return [groups for groups in _GROUPS if groups > before]
    if name in ("back", "positions"):
        return range(int(before) - 1, 1 if name == "back" else 0, -1)
    if name in ("kernel_size", "stride"):
        return range(int(before) + 1, _LARGEST_WINDOW + 1)
    return range(int(before) + 1, 5) if name == "ratio" else []
