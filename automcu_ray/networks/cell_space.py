"""The space of NAS-Bench-201 cells: sampling and mutation, and what a drawing says about its network."""

from functools import cache
from itertools import product
from random import Random
from typing import Any

from automcu_ray.core.models import FrozenModel
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.cell import EDGES, OPERATIONS, CellSpec, Operation
from automcu_ray.networks.cell_network import Skeleton, lower_cell
from automcu_ray.networks.graph import ConstructibilityError, Graph, Shape
from automcu_ray.networks.search_space import Choose, Question

_IDENTITY: tuple[Operation, ...] = ("skip_connect",)
_QUESTIONS = [Question(f"edge_{source}_{target}", OPERATIONS) for source, target in EDGES]
_KERNEL_AREA = {"nor_conv_3x3": 9, "nor_conv_1x1": 1}


class CellSpace(FrozenModel):
    """All 15,625 cells; those that differ in dead edges only count as different, as in the benchmark's table.

    With a skeleton a cell is a network for images of `input_shape` (channels, height, width): equal networks count as
    equal, and a cell with no way from its input to its output as none.
    """

    skeleton: Skeleton | None = None
    input_shape: Shape = (3, 32, 32)
    num_classes: int = 10

    def compose(self, choose: Choose) -> Candidate | None:
        """Return the cell with the operation that `choose` gives each edge; None where it is no network."""
        return self.candidate_or_none([choose(question) for question in _QUESTIONS])

    def sample(self, rng: Random) -> Candidate:
        """Return a random cell."""
        while True:
            found = self.compose(lambda question: rng.choice(question.values))
            if found is not None:
                return found

    def mutate(self, parent: Candidate, rng: Random) -> Candidate:
        """Return a cell that differs in the operation of one edge."""
        assert parent.cell is not None, "only a candidate with a cell can be mutated here"
        while True:
            operations = list(parent.cell.operations)
            edge = rng.randrange(len(operations))
            operations[edge] = rng.choice([name for name in OPERATIONS if name != operations[edge]])
            found = self.candidate_or_none(operations, parent=parent.hash)
            if found is not None and found.hash != parent.hash:
                return found

    def holds(self, candidate: Candidate) -> bool:
        """Return whether a candidate is a cell."""
        return candidate.cell is not None

    @property
    def questions(self) -> list[Question]:
        """Every question that `compose` asks."""
        return list(_QUESTIONS)

    def answers(self, candidate: Candidate) -> dict[Question, Any]:
        """Return the answers with which `compose` gives a candidate."""
        assert candidate.cell is not None, "only a candidate with a cell can be read here"
        return dict(zip(_QUESTIONS, candidate.cell.operations, strict=True))

    def by_capacity(self, rng: Random) -> list[CellSpec]:
        """Return all cells, residual paths first, then more kernel area; ties in random order."""
        ranked = [found for found in _ranked() if self.skeleton is None or found[1].ways()]
        rng.shuffle(ranked)
        return [cell for _, cell in sorted(ranked, key=lambda found: found[0])]

    def candidate(self, operations: list[Any], **about: Any) -> Candidate:
        """Return the cell with these six operations and its hash.

        Raises:
            ConstructibilityError: there is a skeleton, and no network.
        """
        cell = CellSpec.model_validate({"operations": operations})
        found = cell.hash() if self.skeleton is None else self.graph(cell).canonical_hash()
        return Candidate(network=cell, hash=found, **about)

    def candidate_or_none(self, operations: list[Any], **about: Any) -> Candidate | None:
        """Return the cell with these six operations and its hash; None where there is a skeleton, and no network."""
        try:
            return self.candidate(operations, **about)
        except ConstructibilityError:
            return None

    def graph(self, cell: CellSpec) -> Graph:
        """Return the operators of a cell in its skeleton."""
        assert self.skeleton is not None, "cells of a table are looked up, not built"
        return lower_cell(cell, self.skeleton, self.input_shape, self.num_classes)


@cache  # a sweep asks once a run
def _ranked() -> tuple[tuple[tuple[bool, int], CellSpec], ...]:
    cells = (CellSpec.model_construct(operations=found) for found in product(OPERATIONS, repeat=len(EDGES)))
    return tuple(((not has_residual_path(cell), -kernel_area(cell)), cell) for cell in cells)


def kernel_area(cell: CellSpec) -> int:
    """Return the kernel positions of all convolutions that lie on a way from input to output.

    All cells of the benchmark share widths and depth, so parameters grow with this number.
    """
    return sum(_KERNEL_AREA.get(name, 0) for name in cell.ways().values())


def has_residual_path(cell: CellSpec) -> bool:
    """Return whether identities alone lead from the cell's input to its output."""
    return bool(cell.ways(_IDENTITY))
