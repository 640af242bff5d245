"""The widest network of a layout that is expected to fit, by what a run has measured and refused."""

from bisect import bisect_left
from collections.abc import Callable
from functools import partial

from automcu_ray.core.feasibility import Estimate
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.graph import Graph
from automcu_ray.networks.layouts import Layout, read
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from automcu_ray.sizing.size_model import SizeModel
from searchers.gate.prefilter import Prefilter

_LEAST = 2  # channels; all widths are even
_UNSURE = 0.75  # of a width that was refused for something else than bytes


class WidthFitting:
    """Finds the widest network of a layout that is expected to fit, without asking a toolchain.

    Widths that were refused, and wider ones, are not proposed again.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.sizes = SizeModel(task)
        self.refused: dict[Layout, int] = {}  # the narrowest, or what is to be taken for it

    def learn(self, record: Record) -> None:
        """Learn sizes, and refusals of layouts, from a record; whoever proposed it."""
        report, spec = record.feasibility, record.candidate.spec
        if report is None or spec is None:
            return
        if report.ram_bytes:  # it was linked, so its graph can be built
            self.sizes.learn(report, self.task.space.graph(spec))
        found = read(spec, self.task.space) if record.status == "infeasible" else None
        if found is not None:
            layout, width = found
            sized = any(violation.over for violation in report.violations)
            limit = width if sized else int(width * _UNSURE)
            self.refused[layout] = min(limit, self.refused.get(layout, limit))

    def widest(
        self, layout: Layout, prefilter: Prefilter, allowed: Callable[[Estimate], bool] = lambda sizes: True
    ) -> Candidate | None:
        """Return the widest network of a layout that is expected to fit and was not refused; None where none is.

        Widths are bisected: a narrower network is taken to need no more of anything. What its sizes are expected to be
        has to be `allowed`, too.
        """
        end = layout.widest() + 1
        widths = range(_LEAST, min(end, self.refused.get(layout, end)), 2)
        if not widths or self._exceeds(layout, prefilter, allowed, widths[0]):
            return None
        first_too_wide = bisect_left(widths, True, key=partial(self._exceeds, layout, prefilter, allowed))
        return self.candidate(layout, widths[first_too_wide - 1])

    def smallest(self, layout: Layout) -> Candidate | None:
        """Return the narrowest network of a layout, whether it fits or not; None where it cannot be built."""
        return self.candidate(layout, _LEAST)

    def candidate(self, layout: Layout, width: int) -> Candidate | None:
        """Return the network of a layout and a width; None where it cannot be built."""
        spec = layout.spec(width, self.task.space)
        return None if spec is None else self.task.space.candidate_or_none(spec)

    def expect(self, graph: Graph, prefilter: Prefilter) -> Estimate:
        """Return the sizes that a graph is expected to have once linked."""
        return self.sizes.estimate(graph, prefilter.estimator)

    def _exceeds(self, layout: Layout, prefilter: Prefilter, allowed: Callable[[Estimate], bool], width: int) -> bool:
        candidate = self.candidate(layout, width)
        if candidate is None or candidate.spec is None:
            return True
        graph = self.task.space.graph(candidate.spec)
        expected = self.expect(graph, prefilter)
        limits = self.task.ram_limit_bytes, self.task.flash_limit_bytes, self.task.instructions_limit
        over = expected.exceeds(*limits)
        return bool(over or not allowed(expected) or prefilter.check_bounds(graph, self.task))
