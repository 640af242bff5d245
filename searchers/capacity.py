"""Capacity first: fill the budget, residual paths before all others; then trade depth, width and resolution."""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence, Set
from functools import cached_property
from random import Random
from typing import ClassVar

from pydantic import NonNegativeInt

from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.cell import CellSpec
from automcu_ray.networks.layouts import Layout, read, usual
from automcu_ray.problem.task import Form, Task
from automcu_ray.records.record import Record
from searchers.gate.prefilter import Prefilter
from searchers.heuristics.cheapest_first import CheapestFirst
from searchers.heuristics.width_fitting import WidthFitting
from searchers.proposer import NoMoreProposals, Proposer, SearchState

_PARENTS = 3
_LEAST_USE = 0.5  # of its parent's: a neighbour that uses less of the budget is left out


class Capacity(Proposer):
    """Rules of design: residual paths ease training, and accuracy grows with the RAM and Flash that are used.

    Each network proposed is the widest of its layout that is expected to fit. First come usual layouts, those of each
    residual family by how fully they use RAM and Flash; then the neighbours of the best three so far, as wide as fits
    again. Where all of them are known, further usual layouts follow, then neighbours of every trained network, and at
    last layouts without residual paths. Where nothing is expected to fit, the smallest networks are proposed: their
    refusals show how much is missing. Cells come in the order of `CellSpace.by_capacity`.

    Where the cheapest network is sought that is accurate enough, small ones come first (`CheapestFirst`).

    Args:
        task: what is searched for.
        seed: decides between layouts that are equally full, and the order of families and neighbours.
        startup: how many usual layouts come before neighbours of the best.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network", "cell")
    name = "CapacitySearch"

    def __init__(self, task: Task, *, seed: int = 0, startup: NonNegativeInt = 6) -> None:
        super().__init__(task, seed=seed)
        self.startup = startup
        self.widths = WidthFitting(task)
        self.cheapest_first: CheapestFirst | None = None
        if task.aim is not None:
            self.cheapest_first = CheapestFirst(task, task.aim, self.widths, seed=seed, startup=startup)
        self.unlearnt = WidthFitting(task)  # as if nothing were known, so that the order of layouts stays
        self.trained = False
        self._known_cells = 0
        self.tried: set[Layout] = set()
        self.trained_layouts: list[tuple[float, Layout, str]] = []  # score, layout, hash; best first
        self.uses: dict[Layout, float] = {}
        self._ranked: dict[bool, list[Layout]] = {}  # usual layouts, with residual paths and without
        self._narrowest: list[Candidate] | None = None  # of all usual layouts

    def propose(self, state: SearchState) -> Candidate | None:
        if self.task.form == "cell":
            return self._next_cell(state)
        if self.cheapest_first is not None and (cheap := self.cheapest_first.propose(state)) is not None:
            return cheap
        tried = self.tried | {self._layout(candidate) for candidate in state.active}
        best, others = self.trained_layouts[:_PARENTS], self.trained_layouts[_PARENTS:]
        ways: tuple[Callable[[], Candidate | None], ...] = (
            lambda: self._neighbour(best, tried, state) if len(tried) >= self.startup else None,
            lambda: self._new(self._usual(state.prefilter, residual=True), tried, state),
            lambda: self._neighbour([*best, *others], tried, state),
            lambda: self._new(self._usual(state.prefilter, residual=False), tried, state),
            lambda: self._nearest_miss(state),
        )
        found = next((found for way in ways if (found := way()) is not None), None)
        if found is None and not state.in_flight:
            raise NoMoreProposals("no layout of its families has anything left that is new and foreseen to fit")
        return found

    def observe(self, record: Record) -> None:
        self.trained = self.trained or record.training is not None
        self.widths.learn(record)
        if self.cheapest_first is not None:
            self.cheapest_first.observe(record)
        layout = self._layout(record.candidate)
        if layout is None or record.status == "infeasible":  # then it is asked again, narrower
            return
        self.tried.add(layout)
        if record.scored:
            insort(self.trained_layouts, (record.score, layout, record.candidate.hash), key=lambda found: -found[0])

    def _neighbour(
        self, parents: Sequence[tuple[float, Layout, str]], tried: Set[Layout | None], state: SearchState
    ) -> Candidate | None:
        """Return a neighbour, as wide as fits, of one of some networks; None where all are known."""
        for _, layout, parent in state.rng.sample(parents, len(parents)):
            least = _LEAST_USE * self._use(layout, state.prefilter)
            near = [one for one in layout.neighbours() if one.residual and one.allowed(self.task.space)]
            new = [one for one in near if one not in tried]
            state.rng.shuffle(new)
            found = self._new((one for one in new if self._use(one, state.prefilter) >= least), tried, state)
            if found is not None:
                return found.replace(parent=parent)
        return None

    def _new(self, layouts: Iterable[Layout], tried: Set[Layout | None], state: SearchState) -> Candidate | None:
        """Return the first of some layouts, as wide as can be, that has not been tried and is not being tried."""
        filled = (self.widths.widest(layout, state.prefilter) for layout in layouts if layout not in tried)
        return next((one for one in filled if one is not None and one.hash not in state.known), None)

    def _layout(self, candidate: Candidate) -> Layout | None:
        found = None if candidate.spec is None else read(candidate.spec, self.task.space)
        return None if found is None else found[0]

    def _usual(self, prefilter: Prefilter, *, residual: bool) -> list[Layout]:
        """Return usual layouts, those that use RAM and Flash most fully first; families take turns, ties are random."""
        if residual not in self._ranked:
            rng, layouts = Random(self.seed), usual(self.task.space, residual=residual)
            rng.shuffle(layouts)
            used = {layout: round(self._use(layout, prefilter), 1) for layout in layouts}
            turns: dict[str, int] = {}
            ranked = []
            for layout in sorted(layouts, key=lambda one: -used[one]):
                turns[layout.family] = turns.get(layout.family, 0) + 1
                ranked.append((turns[layout.family], rng.random(), layout))
            self._ranked[residual] = [layout for *_, layout in sorted(ranked, key=lambda one: one[:2])]
        return self._ranked[residual]

    def _use(self, layout: Layout, prefilter: Prefilter) -> float:
        """Return which share of RAM times which share of Flash a layout uses, as wide as it can be; 0: never fits."""
        if layout not in self.uses:
            candidate = self.unlearnt.widest(layout, prefilter)
            self.uses[layout] = 0.0 if candidate is None else self._shares(candidate, prefilter)
        return self.uses[layout]

    def _shares(self, candidate: Candidate, prefilter: Prefilter) -> float:
        assert candidate.spec is not None, "layouts have specs"
        expected = self.unlearnt.expect(self.task.space.graph(candidate.spec), prefilter)
        return expected.ram_bytes / self.task.ram_limit_bytes * expected.flash_bytes / self.task.flash_limit_bytes

    def _nearest_miss(self, state: SearchState) -> Candidate | None:
        """Return the narrowest new network of any layout, by RAM and Flash, where nothing has trained so far."""
        if self.trained:
            return None
        if self._narrowest is None:
            layouts = [one for residual in (True, False) for one in self._usual(state.prefilter, residual=residual)]
            found = [one for one in map(self.widths.smallest, layouts) if one is not None]
            self._narrowest = sorted(found, key=lambda one: self._shares(one, state.prefilter))
        return next((one for one in self._narrowest if one.hash not in state.known), None)

    def _next_cell(self, state: SearchState) -> Candidate:
        """Return the largest cell that nobody has proposed yet."""
        while self._known_cells < len(self._order):
            candidate = self.task.cells.candidate(list(self._order[self._known_cells].operations))
            if candidate.hash not in state.known:
                return candidate
            self._known_cells += 1  # all before it have been seen
        raise NoMoreProposals("all cells have been proposed")

    @cached_property
    def _order(self) -> list[CellSpec]:
        return self.task.cells.by_capacity(Random(self.seed))
