"""Capacity first: fill the budget, residual paths before all others; then trade depth, width and resolution."""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence, Set
from functools import cached_property
from random import Random
from typing import ClassVar

from pydantic import NonNegativeInt

from automcu_ray.cell import CellSpec
from automcu_ray.families import Layout, read, usual
from automcu_ray.record import Candidate, Record
from automcu_ray.task import Form, Task
from searchers.base import BaseSearcher
from searchers.filling import Filling

_PARENTS = 3
_LEAST_USE = 0.5  # of its parent's: whose step leaves more of the budget unused has left the surface


class CapacitySearch(BaseSearcher):
    """General design knowledge: gradients need a short way, and accuracy grows with what the budget pays for.

    Each network proposed is a point of the constraint surface: the widest of its layout that is foreseen to fit.
    First come usual layouts, those of each residual family by how fully they use RAM and Flash; then the neighbours of
    the best three so far, filled to the limit again. Where all of them are known it goes on with usual layouts, with
    neighbours of whatever trained, and at last without residual paths. Where nothing is foreseen to fit, the smallest
    networks show how much is missing. Cells come in the order of `CellSpace.by_capacity`.

    Args:
        task: what is searched for.
        seed: decides between layouts that are equally full, and the order of families and neighbours.
        startup: how many usual layouts come before neighbours of the best.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network", "cell")

    def __init__(self, task: Task, *, seed: int = 0, startup: NonNegativeInt = 6) -> None:
        super().__init__(task, seed=seed)
        self.startup = startup
        self.filling = Filling(task)
        self.unlearnt = Filling(task)  # as if nothing were known, so that the order of layouts stays
        self._known_cells = 0
        self.tried: set[Layout] = set()
        self.trained_layouts: list[tuple[float, Layout, str]] = []  # score, layout, hash; best first
        self.uses: dict[Layout, float] = {}

    def propose(self) -> Candidate | None:
        if self.task.form == "cell":
            return self._next_cell()
        known = self.tried | {self._layout(candidate) for candidate in self.repository.pending()}
        best, others = self.trained_layouts[:_PARENTS], self.trained_layouts[_PARENTS:]
        ways: tuple[Callable[[], Candidate | None], ...] = (
            lambda: self._neighbour(best, known) if len(known) >= self.startup else None,
            lambda: self._new(self._residual, known),
            lambda: self._neighbour([*best, *others], known),
            lambda: self._new(self._others, known),
            self._nearest_miss,
        )
        found = next((found for way in ways if (found := way()) is not None), None)
        if found is None and not self.in_flight:
            self.gave_up = "no layout of its families has anything left that is new and foreseen to fit"
        return found

    def observe(self, record: Record) -> None:
        self.filling.learn(record)
        layout = self._layout(record.candidate)
        if layout is None or record.status == "infeasible":  # then it is asked again, narrower
            return
        self.tried.add(layout)
        if record.scored:
            insort(self.trained_layouts, (record.score, layout, record.candidate.hash), key=lambda found: -found[0])

    def _neighbour(self, parents: Sequence[tuple[float, Layout, str]], known: Set[Layout | None]) -> Candidate | None:
        """Return a step along the constraint surface from one of some networks; None where all are known."""
        for _, layout, parent in self.rng.sample(parents, len(parents)):
            least = _LEAST_USE * self._use(layout)
            near = [one for one in layout.neighbours() if one.residual and one.allowed(self.task.space)]
            new = [one for one in near if one not in known]
            self.rng.shuffle(new)
            found = self._new((one for one in new if self._use(one) >= least), known)
            if found is not None:
                return found.model_copy(update={"parent": parent})
        return None

    def _new(self, layouts: Iterable[Layout], known: Set[Layout | None]) -> Candidate | None:
        """Return the first of some layouts, as wide as can be, that has not been tried and is not being tried."""
        filled = (self.filling.widest(layout, self.gate) for layout in layouts if layout not in known)
        return next((one for one in filled if one is not None and one.hash not in self.seen), None)

    def _layout(self, candidate: Candidate) -> Layout | None:
        found = None if candidate.spec is None else read(candidate.spec, self.task.space)
        return None if found is None else found[0]

    @cached_property
    def _residual(self) -> list[Layout]:
        return self._by_use(usual(self.task.space, residual=True))

    @cached_property
    def _others(self) -> list[Layout]:
        return self._by_use(usual(self.task.space, residual=False))

    def _by_use(self, layouts: list[Layout]) -> list[Layout]:
        """Return layouts, those that use RAM and Flash most fully first; families take turns, ties are random."""
        rng = Random(self.seed)
        rng.shuffle(layouts)
        used = {layout: round(self._use(layout), 1) for layout in layouts}
        turns: dict[str, int] = {}
        ranked = []
        for layout in sorted(layouts, key=lambda one: -used[one]):
            turns[layout.family] = turns.get(layout.family, 0) + 1
            ranked.append((turns[layout.family], rng.random(), layout))
        return [layout for *_, layout in sorted(ranked, key=lambda one: one[:2])]

    def _use(self, layout: Layout) -> float:
        """Return which share of RAM times which share of Flash a layout uses, as wide as it can be; 0: never fits."""
        if layout not in self.uses:
            candidate = self.unlearnt.widest(layout, self.gate)
            self.uses[layout] = 0.0 if candidate is None else self._shares(candidate)
        return self.uses[layout]

    def _shares(self, candidate: Candidate) -> float:
        assert candidate.spec is not None, "layouts have specs"
        expected = self.unlearnt.expect(self.task.space.graph(candidate.spec), self.gate)
        return expected.ram_bytes / self.task.ram_limit_bytes * expected.flash_bytes / self.task.flash_limit_bytes

    def _nearest_miss(self) -> Candidate | None:
        """Return the smallest network that was not proposed yet, where nothing has fitted so far."""
        return None if self.trained else next((one for one in self._smallest if one.hash not in self.seen), None)

    @cached_property
    def _smallest(self) -> list[Candidate]:
        """The narrowest network of each layout, the one with the least RAM and Flash first."""
        found = [self.filling.smallest(layout) for layout in (*self._residual, *self._others)]
        return sorted((one for one in found if one is not None), key=self._shares)

    def _next_cell(self) -> Candidate | None:
        """Return the largest cell that nobody has proposed yet."""
        while self._known_cells < len(self._order):
            candidate = self.task.cells.candidate(list(self._order[self._known_cells].operations))
            if candidate.hash not in self.seen:
                return candidate
            self._known_cells += 1  # all before it have been seen
        self.gave_up = "all cells have been proposed"
        return None

    @cached_property
    def _order(self) -> list[CellSpec]:
        return self.task.cells.by_capacity(Random(self.seed))
