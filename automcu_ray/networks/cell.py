"""A NAS-Bench-201 cell: six edges, five operations, 15,625 networks whose accuracies are in a table."""

import hashlib
import re
from collections.abc import Collection
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from automcu_ray.core.models import FrozenModel

Operation = Literal["none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))  # (from, to) of the nodes, in the order of the operations
OUTPUT = 3
Edges = dict[tuple[int, int], Operation]


class CellSpec(FrozenModel):
    """Four nodes: 0 is the cell's input, 3 its output; each other node is the sum of its edges (arXiv:2001.00326)."""

    operations: Annotated[tuple[Operation, ...], Field(min_length=len(EDGES), max_length=len(EDGES))]

    @classmethod
    def parse(cls, text: str) -> "CellSpec":
        """Return the cell that the benchmark writes as `|op~0|+|op~0|op~1|+|op~0|op~1|op~2|`.

        Raises:
            ValueError: another form or an unknown operation (pydantic's ValidationError is one).
        """
        found = re.findall(r"([a-z0-9_]+)~\d", text)
        cell = cls.model_validate({"operations": found})
        if str(cell) != text:
            raise ValueError(f"a cell reads |op~0|+|op~0|op~1|+|op~0|op~1|op~2|, found {text[:120]!r}")
        return cell

    def __str__(self) -> str:
        """Return the cell as the benchmark writes it."""
        a, b, c, d, e, f = self.operations
        return f"|{a}~0|+|{b}~0|{c}~1|+|{d}~0|{e}~1|{f}~2|"

    def ways(self, allowed: Collection[Operation] = OPERATIONS[1:]) -> Edges:
        """Return the edges that lie on a way from input to output over allowed operations; {} where there is none."""
        edges: Edges = {
            edge: name for edge, name in zip(EDGES, self.operations, strict=True) if name != "none" and name in allowed
        }
        reached, needed = {0}, {OUTPUT}
        for source, target in sorted(edges):
            reached |= {target} if source in reached else set()
        for source, target in sorted(edges, reverse=True):
            needed |= {source} if target in needed else set()
        return {(a, b): name for (a, b), name in edges.items() if a in reached and b in needed}

    def hash(self) -> str:
        """Return 12 hex digits that are equal for equal cells."""
        return hashlib.sha256(str(self).encode()).hexdigest()[:12]

    def compact(self) -> dict[str, Any]:
        """Return the JSON object that reads back as this cell."""
        return {"operations": list(self.operations)}
