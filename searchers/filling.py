"""How wide a network can be: what it needs beyond its lower bounds, learnt from a run's own verdicts."""

from bisect import bisect_left
from functools import partial
from typing import NamedTuple

from automcu_ray.families import Layout, read
from automcu_ray.feasibility import Estimate
from automcu_ray.footprint import footprint
from automcu_ray.graph import Graph
from automcu_ray.record import Candidate, Record
from automcu_ray.task import Task
from searchers.gate import Gate

_SIMILAR = 3  # numbers of operators, whose largest correction counts
_LEAST = 2  # channels; all widths are even
_UNSURE = 0.75  # of a width that was refused for something else than bytes


class Beyond(NamedTuple):
    """Bytes that a network needs beyond its lower bounds, or by how much a guess at them was off."""

    ram: int
    flash: int


def first_guess(graph: Graph) -> Beyond:
    """Return what is taken to come on top of a graph's lower bounds until verdicts tell more.

    Stack and harness; start-up, code by operator, tables by channel. The figures are a least-squares fit to 33 random
    networks that c_qemu has linked at int8 for a Cortex-M4 (19 of 20 within 290 bytes); nothing else rests on them.
    """
    return Beyond(ram=1040, flash=2516 + 238 * len(graph.ops) + 5 * sum(op.biases for op in graph.ops))


class Filling:
    """Finds the widest network of a layout that is foreseen to fit, without asking a toolchain.

    Where an estimator knows the toolchain, it is asked. What a network of this run turned out to need corrects the
    first guess for those with a similar number of operators; one with as many comes before the estimator. Widths that
    were refused are not reached again.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.off: dict[int, Beyond] = {}  # by the number of operators; the most that any with so many needed
        self.refused: dict[Layout, int] = {}  # the narrowest, or what is to be taken for it

    def learn(self, record: Record) -> None:
        """Learn sizes, and refusals of layouts, from a record; whoever proposed it."""
        report, spec = record.feasibility, record.candidate.spec
        if report is None or spec is None:
            return
        if report.ram_bytes and report.flash_bytes:
            graph = self.task.space.graph(spec)
            least = footprint(graph, self.task.precision)
            guess = first_guess(graph)
            ram = report.ram_bytes - least.ram_lower_bound_bytes - guess.ram
            flash = report.flash_bytes - least.flash_lower_bound_bytes - guess.flash
            before = self.off.get(len(graph.ops), Beyond(ram, flash))
            self.off[len(graph.ops)] = Beyond(max(ram, before.ram), max(flash, before.flash))
        found = read(spec, self.task.space) if record.status == "infeasible" else None
        if found is not None:
            layout, width = found
            sized = any(violation.over_bytes for violation in report.violations)
            limit = width if sized else int(width * _UNSURE)
            self.refused[layout] = min(limit, self.refused.get(layout, limit))

    def widest(self, layout: Layout, gate: Gate) -> Candidate | None:
        """Return the widest network of a layout that is foreseen to fit and was not refused; None where none is.

        Widths are bisected: a narrower network is taken to need no more of anything.
        """
        end = layout.widest() + 1
        widths = range(_LEAST, min(end, self.refused.get(layout, end)), 2)
        if not widths or self._exceeds(layout, gate, widths[0]):
            return None
        return self.candidate(layout, widths[bisect_left(widths, True, key=partial(self._exceeds, layout, gate)) - 1])

    def smallest(self, layout: Layout) -> Candidate | None:
        """Return the narrowest network of a layout, whether it fits or not; None where it cannot be built."""
        return self.candidate(layout, _LEAST)

    def candidate(self, layout: Layout, width: int) -> Candidate | None:
        """Return the network of a layout and a width; None where it cannot be built."""
        spec = layout.spec(width, self.task.space)
        return None if spec is None else self.task.space.candidate_or_none(spec)

    def expect(self, graph: Graph, gate: Gate) -> Estimate:
        """Return the sizes that a graph is expected to have once linked."""
        operators = len(graph.ops)
        if operators not in self.off and gate.estimator and (estimate := gate.estimator.estimate(graph)):
            return estimate
        least, guess = footprint(graph, self.task.precision), first_guess(graph)
        nearest = sorted(self.off, key=lambda known: abs(known - operators))[:_SIMILAR]
        similar = [self.off[known] for known in nearest] or [Beyond(0, 0)]
        return Estimate(
            ram_bytes=least.ram_lower_bound_bytes + guess.ram + max(off.ram for off in similar),
            flash_bytes=least.flash_lower_bound_bytes + guess.flash + max(off.flash for off in similar),
            ram_error_bytes=0,
            flash_error_bytes=0,
        )

    def _exceeds(self, layout: Layout, gate: Gate, width: int) -> bool:
        candidate = self.candidate(layout, width)
        if candidate is None or candidate.spec is None:
            return True
        graph = self.task.space.graph(candidate.spec)
        expected = self.expect(graph, gate)
        over = expected.exceeds(self.task.ram_limit_bytes, self.task.flash_limit_bytes)
        return bool(over or gate.foresee(graph, self.task))
