"""The space of NAS-Bench-201 cells: sampling and mutation, and what a drawing says about its network."""

from functools import cache
from itertools import product
from random import Random
from typing import Any

from automcu_ray.cell import EDGES, OPERATIONS, CellSpec
from automcu_ray.frozen import Frozen
from automcu_ray.record import Candidate
from automcu_ray.space import Answers, Choose

_KERNEL_AREA = {"nor_conv_3x3": 9, "nor_conv_1x1": 1}


class CellSpace(Frozen):
    """All 15,625 cells; those that differ in dead edges only count as different, as in the benchmark."""

    def compose(self, choose: Choose) -> Candidate:
        """Return the cell whose every edge `choose(name, operations)` decides."""
        return self.candidate([choose(f"edge_{source}_{target}", OPERATIONS) for source, target in EDGES])

    def sample(self, rng: Random) -> Candidate:
        """Return a random cell."""
        return self.compose(lambda _, values: rng.choice(values))

    def mutate(self, parent: Candidate, rng: Random) -> Candidate:
        """Return a cell that differs in the operation of one edge."""
        assert parent.cell is not None, "only a candidate with a cell can be mutated here"
        operations = list(parent.cell.operations)
        edge = rng.randrange(len(operations))
        operations[edge] = rng.choice([name for name in OPERATIONS if name != operations[edge]])
        return self.candidate(operations, parent=parent.hash)

    def answers(self, candidate: Candidate) -> Answers:
        """Return what `compose` has to be told to give a candidate."""
        assert candidate.cell is not None, "only a candidate with a cell can be read here"
        names = (f"edge_{source}_{target}" for source, target in EDGES)
        return {name: (value, OPERATIONS) for name, value in zip(names, candidate.cell.operations, strict=True)}

    def by_capacity(self, rng: Random) -> list[CellSpec]:
        """Return all cells, residual paths first, then more kernel area; ties in random order."""
        ranked = list(_ranked())
        rng.shuffle(ranked)
        return [cell for _, cell in sorted(ranked, key=lambda found: found[0])]

    def candidate(self, operations: list[Any], **about: Any) -> Candidate:
        """Return the cell with these six operations and its hash."""
        cell = CellSpec.model_validate({"operations": operations})
        return Candidate(cell=cell, hash=cell.hash(), **about)


@cache  # a sweep asks once a run
def _ranked() -> tuple[tuple[tuple[bool, int], CellSpec], ...]:
    cells = (CellSpec.model_construct(operations=found) for found in product(OPERATIONS, repeat=len(EDGES)))
    return tuple(((not has_residual_path(cell), -kernel_area(cell)), cell) for cell in cells)


def kernel_area(cell: CellSpec) -> int:
    """Return the kernel positions of all convolutions that lie on a way from input to output.

    All cells of the benchmark share widths and depth, so parameters grow with this number.
    """
    live = _reachable(cell, forward=True), _reachable(cell, forward=False)
    return sum(
        _KERNEL_AREA.get(name, 0)
        for (source, target), name in zip(EDGES, cell.operations, strict=True)
        if source in live[0] and target in live[1]
    )


def has_residual_path(cell: CellSpec) -> bool:
    """Return whether identities alone lead from the cell's input to its output."""
    return 3 in _walk(cell, forward=True, passes=lambda name: name == "skip_connect")


def _reachable(cell: CellSpec, *, forward: bool) -> set[int]:
    return _walk(cell, forward=forward, passes=lambda name: name != "none")


def _walk(cell: CellSpec, *, forward: bool, passes: Any) -> set[int]:
    """Return the nodes that can be reached from the input, or from the output backwards, over passable edges."""
    found = {0 if forward else 3}
    edges = list(zip(EDGES, cell.operations, strict=True))
    for (source, target), name in sorted(edges, reverse=not forward):
        start, end = (source, target) if forward else (target, source)
        if start in found and passes(name):
            found.add(end)
    return found
