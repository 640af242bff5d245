"""What would make a refused spec fit: the smallest change of one field, where a single one does."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, NamedTuple

from pydantic import ValidationError

from automcu_ray.estimate import Estimator
from automcu_ray.feasibility import Change, FeasibilityReport, Violation
from automcu_ray.footprint import footprint
from automcu_ray.graph import ConstructibilityError, Graph
from automcu_ray.space import Space, without_derived
from automcu_ray.spec import ArchitectureSpec, Classifier
from automcu_ray.task import Task

Exceeds = Callable[[Graph], AbstractSet[str]]  # the resources that a graph asks too much of
Foresee = Callable[[Graph, Task], tuple[Violation, ...]]

BUDGET_OPS = 5_000  # of one refusal's fixes; at about 4 us an operator, some 20 to 30 ms
_TRIAL_OPS = 50  # what reading a changed spec costs, whatever its size
_KERNELS = (7, 5, 3, 1)
_LARGEST_WINDOW = 8
_FEW = 6  # windows: one too large for its image is no reason to give up the others
_FINE = {"expansion": 0.1, "se_ratio": 0.05}  # steps that people would write down
_LOWEST = {"expansion": 0.1, "se_ratio": 0.0}


class _Field(NamedTuple):
    """A field of a layer, with the values that may make the network smaller, from the smallest change on."""

    layer: int
    name: str
    before: int | float
    values: Sequence[int | float]

    def size(self, after: int | float) -> float:
        """Return how large a change is, as a share of what was there before."""
        return abs(after - self.before) / self.before


@dataclass
class _Trials:
    """Networks with one field changed; `left` is what may still be spent on looking at them, in operators.

    Counted, and not timed: what is found must not depend on how busy the machine is.
    """

    spec: ArchitectureSpec
    space: Space
    fits: Callable[[Graph], bool]
    left: int
    graphs: dict[tuple[int, str, int | float], Graph] = field(default_factory=dict)  # of those that fit

    def __post_init__(self) -> None:
        self.layers = without_derived(self.spec).compact()["backbone"]

    def passes(self, changed: _Field, value: int | float) -> bool:
        """Return whether a value makes the network fit; no longer where too much was spent."""
        if self.left <= 0:
            return False
        graph = _graph(self.layers, changed, value, self.spec.head, self.space)
        self.left -= _TRIAL_OPS + (len(self.layers) if graph is None else len(graph.ops))
        if graph is None or not self.fits(graph):
            return False
        self.graphs[changed.layer, changed.name, value] = graph
        return True


def smallest_change(
    spec: ArchitectureSpec, space: Space, fits: Callable[[Graph], bool], budget_ops: int = BUDGET_OPS
) -> Change | None:
    """Return the smallest change of one field after which the network fits, or None where no single one does.

    Smallest is the share of the field's own value; among equals the network with the most parameters, then MACs, is
    left. Widths are bisected: a network that is narrower in one place is taken to need no more of anything. Large
    networks exhaust the budget: then it is the smallest of those found, the largest layers having been tried first.
    """
    trials = _Trials(spec, space, fits, budget_ops)
    best: tuple[float, int, int] | None = None
    change = None
    for one in _fields(spec, space.graph(spec)):
        allowed = [value for value in one.values if best is None or one.size(value) <= best[0]]
        after = _first(allowed, partial(trials.passes, one))
        if after is None:
            continue
        kept = trials.graphs[one.layer, one.name, after]
        rank = (one.size(after), -sum(op.weights for op in kept.ops), -sum(op.macs for op in kept.ops))
        if best is None or rank < best:
            best, change = rank, Change(where=f"layer_{one.layer + 1}.{one.name}", before=one.before, after=after)
    return change


def before_link(
    violations: tuple[Violation, ...], spec: ArchitectureSpec, task: Task, foresee: Foresee, estimator: Estimator | None
) -> tuple[Violation, ...]:
    """Return an analytic refusal's violations with fixes after which nothing is foreseen and the estimate fits.

    Without an estimate a fix only leads past the lower bounds: a toolchain may still refuse it.
    """

    def exceeds(graph: Graph) -> AbstractSet[str]:
        found = {violation.resource for violation in foresee(graph, task)}
        estimate = estimator and estimator.estimate(graph)
        return found | estimate.exceeds(task.ram_limit_bytes, task.flash_limit_bytes) if estimate else found

    return _with_fixes(violations, spec, task.space, exceeds)


def after_link(report: FeasibilityReport, spec: ArchitectureSpec, task: Task, foresee: Foresee) -> FeasibilityReport:
    """Return a toolchain's report with fixes: what it measured, less what the lower bounds of both networks differ by.

    One field changes few operators, so that what the bounds leave out all but cancels. No estimate takes part: equal
    verdicts have to teach the same in every run, whatever other runs have learned meanwhile.
    """
    sized = tuple(v for v in report.violations if v.found_bytes is not None and v.limit_bytes is not None)
    if not sized or report.ram_bytes is None or report.flash_bytes is None:
        return report
    least = footprint(task.space.graph(spec), task.precision)
    beyond_ram = report.ram_bytes - least.ram_lower_bound_bytes
    beyond_flash = report.flash_bytes - least.flash_lower_bound_bytes

    def exceeds(graph: Graph) -> AbstractSet[str]:
        found = footprint(graph, task.precision)
        ram, flash = found.ram_lower_bound_bytes + beyond_ram, found.flash_lower_bound_bytes + beyond_flash
        over = {"ram": ram > task.ram_limit_bytes, "flash": flash > task.flash_limit_bytes}
        return {name for name, is_over in over.items() if is_over} | {v.resource for v in foresee(graph, task)}

    taught = dict(zip(sized, _with_fixes(sized, spec, task.space, exceeds), strict=True))
    violations = tuple(taught.get(violation, violation) for violation in report.violations)
    return report.model_copy(update={"violations": violations})


def _with_fixes(
    violations: tuple[Violation, ...], spec: ArchitectureSpec, space: Space, exceeds: Exceeds
) -> tuple[Violation, ...]:
    """Return the violations with one change that cures all of them, else with one for each resource, or None.

    `exceeds` names the resources that a graph asks too much of.
    """
    asked = sorted({violation.resource for violation in violations})
    share = BUDGET_OPS // (1 if len(asked) == 1 else 1 + len(asked))
    cure = smallest_change(spec, space, lambda graph: not exceeds(graph), share)
    fixes: dict[str, Change | None] = dict.fromkeys(asked, cure)
    if cure is None and len(asked) > 1:
        for resource in asked:
            fixes[resource] = smallest_change(spec, space, _only({*asked} - {resource}, exceeds), share)
    return tuple(violation.model_copy(update={"fix": fixes[violation.resource]}) for violation in violations)


def _only(others: AbstractSet[str], exceeds: Exceeds) -> Callable[[Graph], bool]:
    """Return whether a graph exceeds nothing but the others."""
    return lambda graph: exceeds(graph) <= others


def _fields(spec: ArchitectureSpec, graph: Graph) -> Iterator[_Field]:
    """Yield every numeric field that can make a network smaller, those of its largest layers first."""
    shares = _shares(graph, len(spec.backbone))
    for at in sorted(range(len(spec.backbone)), key=lambda at: -shares[at]):
        layer = spec.backbone[at]
        for name, value in layer:
            if name != "in_channels" and isinstance(value, int | float) and value > 0:
                values = _values(layer.type, name, value, getattr(layer, "ratio", 1))
                if values:
                    yield _Field(at, name, value, values)


def _shares(graph: Graph, layers: int) -> list[float]:
    """Return how large each layer is: its share of the weights, and of the largest tensor."""
    weights, tensors = [0] * layers, [0] * layers
    for op in graph.ops:
        if op.name.startswith("layer_"):
            at = int(op.name.partition(".")[0].removeprefix("layer_")) - 1
            weights[at] += op.weights
            tensors[at] = max(tensors[at], prod(op.shape))
    return [w / max(1, sum(weights)) + t / max(tensors) for w, t in zip(weights, tensors, strict=True)]


def _values(kind: str, name: str, before: int | float, ratio: int) -> Sequence[int | float]:
    pool = kind in ("max_pool", "avg_pool")
    if name == "out_channels":
        return range(int(before) - ratio, 0, -ratio)
    if name in ("expansion", "se_ratio"):
        step, lowest = _FINE[name], 1.0 if kind == "mbconv" and name == "expansion" else _LOWEST[name]
        steps = range(round(before / step), -1, -1)
        return [value for value in (round(times * step, 2) for times in steps) if lowest <= value < before]
    if name in ("kernel_size", "dw_size") and not pool:
        return [size for size in _KERNELS if size < before]
    if name == "stride" and not pool:
        return [2] if before == 1 else []
    if name in ("kernel_size", "stride"):
        return range(int(before) + 1, _LARGEST_WINDOW + 1)
    return range(int(before) + 1, 5) if name == "ratio" else []


def _first(values: Sequence[int | float], passes: Callable[[int | float], bool]) -> int | float | None:
    """Return the first value that passes; where there are many, those behind one that passes are taken to pass too."""
    if len(values) <= _FEW:
        return next((value for value in values if passes(value)), None)
    if not passes(values[-1]):
        return None
    return values[bisect_left(values, True, hi=len(values) - 1, key=passes)]


def _graph(
    layers: list[dict[str, Any]], changed: _Field, value: int | float, head: Classifier, space: Space
) -> Graph | None:
    """Return the graph with one field changed, or None where that cannot be built."""
    backbone = [*layers]
    backbone[changed.layer] = {**layers[changed.layer], changed.name: value}
    try:
        return space.graph(ArchitectureSpec.model_validate({"backbone": backbone, "head": head}))
    except (ValidationError, ConstructibilityError):
        return None
