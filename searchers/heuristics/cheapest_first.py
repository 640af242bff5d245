"""Small first: networks grow while they fall short in accuracy, then shrink as far as accuracy lets them."""

import math
from collections.abc import Iterator
from functools import partial
from random import Random
from statistics import median

from automcu_ray.core.feasibility import Estimate
from automcu_ray.core.objective import Aim
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.layouts import Layout, read, usual
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from searchers.heuristics.width_fitting import WidthFitting
from searchers.proposer import SearchState

_PARENTS = 3
_TRIES = 2  # networks that fall short before the next ones may cost more
_GROWTH = 2.0
_SHRINK = (0.5, 0.7, 0.85)  # of the cheapest that is accurate enough; which one, chance decides
_FIRST = 4.0  # times the narrowest usual layouts: what the first networks may cost
_LAST = 4  # pixels a side of the last stage


class CheapestFirst:
    """Finds the cheapest network that is accurate enough, as `Capacity` finds the most accurate one that fits.

    Each network proposed is the widest of its layout within a cap on its expected cost. The cap doubles as long as
    networks fall short; once one is accurate enough it stays below the cheapest such. Layouts are the usual ones, of
    each family in turn, those with a last stage of some 4x4 pixels first (`_in_turn`), and from `startup` on the
    neighbours of the best so far.
    """

    def __init__(self, task: Task, aim: Aim, widths: WidthFitting, *, seed: int, startup: int) -> None:
        self.task, self.aim, self.widths, self.startup = task, aim, widths, startup
        self.records: list[tuple[float, Layout, str]] = []  # score, layout, hash
        self.short = 0  # networks that were trained and fall short, since the search began
        self.cheapest: float | None = None  # cost of the best that is accurate enough
        self.usual = self._in_turn(Random(seed))
        self._first: float | None = None

    def observe(self, record: Record) -> None:
        """Learn from a trained network, whoever proposed it."""
        if not record.scored:
            return
        found = None if record.candidate.spec is None else read(record.candidate.spec, self.task.space)
        if found is not None:
            self.records.append((record.score, found[0], record.candidate.hash))
        cost = self.aim.cost(record.feasibility)
        if record.score < 0:
            self.short += 1
        elif cost is not None:
            self.cheapest = min(cost, self.cheapest or cost)

    def propose(self, state: SearchState) -> Candidate | None:
        """Return a new network within the cap; None where all layouts that could be are known."""
        for cap in self._caps(state):
            for layout, parent in self._layouts(state):
                candidate = self.widths.widest(layout, state.prefilter, partial(self._within, cap))
                if candidate is not None and candidate.hash not in state.known:
                    return candidate.replace(parent=parent)
        return None

    def _caps(self, state: SearchState) -> Iterator[float]:
        """Yield what a network may cost, the cap that is wanted first; others, where its networks are all known."""
        if self.cheapest is not None:
            shares = [*_SHRINK, 1.0]
            state.rng.shuffle(shares)
            yield from (share * self.cheapest for share in shares)
            return
        if self._first is None:
            narrowest = (self.widths.smallest(layout) for layout in self.usual)
            self._first = _FIRST * median(
                self._cost(self.widths.expect(self.task.space.graph(one.spec), state.prefilter))
                for one in narrowest
                if one is not None and one.spec is not None
            )
        steps = (self.short + state.in_flight) // _TRIES
        yield from (self._first * _GROWTH**step for step in range(steps, steps + 12))

    def _layouts(self, state: SearchState) -> Iterator[tuple[Layout, str]]:
        if len(self.records) >= self.startup:
            best = sorted(self.records, key=lambda one: -one[0])[:_PARENTS]
            near = [
                (layout, parent)
                for _, parent_layout, parent in best
                for layout in (parent_layout, *parent_layout.neighbours())
                if layout.allowed(self.task.space)
            ]
            state.rng.shuffle(near)
            yield from near
        start = len(state.known) % max(1, len(self.usual))  # families take turns
        yield from ((layout, "") for layout in [*self.usual[start:], *self.usual[:start]])

    def _in_turn(self, rng: Random) -> list[Layout]:
        """Return the usual layouts, families in turn, of each those first that published networks resemble.

        Those end in stages of about 4x4 pixels (He et al. 2016, arXiv:1512.03385, section 4.2, in 8x8; MobileNets in
        3x3 to 7x7): less leaves late stages, whose weights cost few instructions, too little to work with. Of equals
        the shallow ones come first.
        """
        layouts = [one for residual in (True, False) for one in usual(self.task.space, residual=residual)]
        rng.shuffle(layouts)
        turns: dict[str, int] = {}
        ranked = []
        for layout in sorted(
            layouts, key=lambda one: (abs(math.log2(one.last_side(self.task.space) / _LAST)), sum(one.blocks))
        ):
            turns[layout.family] = turns.get(layout.family, 0) + 1
            ranked.append((turns[layout.family], rng.random(), layout))
        return [layout for *_, layout in sorted(ranked, key=lambda one: one[:2])]

    def _within(self, cap: float, sizes: Estimate) -> bool:
        return self._cost(sizes) <= cap

    def _cost(self, sizes: Estimate) -> float:
        costs = {"instructions": sizes.instructions, "ram": sizes.ram_bytes, "flash": sizes.flash_bytes}
        return costs[self.aim.objective] or 0
