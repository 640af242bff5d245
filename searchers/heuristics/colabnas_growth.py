"""Growth by Occam's razor (ColabNAS, arXiv:2212.07700): what is added has to pay in accuracy, or is left out."""

from collections.abc import Callable
from itertools import count
from math import ceil, inf
from typing import Any, NamedTuple

from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.cell import EDGES
from automcu_ray.networks.cell_space import CellSpace
from automcu_ray.networks.search_space import Space

Ask = Callable[[Candidate], float]  # accuracy; -inf: refused; an exception where it is not known yet
LEAST_GAIN = 0.005  # in accuracy, for which a width is doubled; the first time any will do, as in the paper
_POOL = {"type": "max_pool", "kernel_size": 2}
_CONV = {"type": "conv", "kernel_size": 3}

BLOCKS: tuple[dict[str, Any], ...] = (
    _CONV,  # the paper's; the others are richer
    {"type": "residual", "kernel_size": 3},
    {"type": "mbconv", "expansion": 4, "kernel_size": 3},
    {"type": "conv", "kernel_size": 5},
)


class Grown(NamedTuple):
    """A network and its accuracy; equal accuracies are not compared further."""

    accuracy: float
    width: int
    cells: int


class NetworkGrowth:
    """Networks of one convolution and some cells: a pool and a block, each cell wider than the one before.

    As published but for the hidden linear layer before the classes, which specs do not have. The paper ends where
    neither cells nor width pay; here a richer block is tried then, from the best width on, and smaller steps in width.
    """

    def __init__(self, space: Space, first_width: int) -> None:
        self.space, self.first_width = space, first_width

    def walk(self, ask: Ask) -> None:
        """Grow to the end; `ask` decides."""
        width, best, best_block = self.first_width, -inf, BLOCKS[0]
        for block in (one for one in BLOCKS if one["type"] in self.space.types):
            found = self._widths(width, block, ask)
            if found.accuracy > best:
                best, best_block, width = found.accuracy, block, found.width
        for step in (2, 4, 8):  # a doubled width may have been refused where half as much more fits
            while (found := self._cells(width + max(1, width // step), best_block, ask)).accuracy > best:
                best, width = found.accuracy, found.width

    def _widths(self, first: int, block: dict[str, Any], ask: Ask) -> Grown:
        """Return the best of doubled widths while they pay, or else of halved ones while they cost nothing."""
        best = self._cells(first, block, ask)
        while True:
            wider = self._cells(2 * best.width, block, ask)
            least = 0 if wider.width <= 2 * self.first_width else LEAST_GAIN
            if not wider.accuracy > best.accuracy + least:
                break
            best = wider
        if best.width > first:
            return best
        while best.width > 1 and (narrower := self._cells(best.width // 2, block, ask)).accuracy >= best.accuracy:
            best = narrower
        return best

    def _cells(self, width: int, block: dict[str, Any], ask: Ask) -> Grown:
        """Return the best of a width: one more cell as long as that pays, or as nothing has been accepted yet.

        Fewer cells leave larger images, which an accelerator may not be able to average.
        """
        best = Grown(-inf, width, 0)
        for cells in count():
            candidate = self.network(width, cells, block)
            if candidate is None:
                break
            accuracy = ask(candidate)
            if accuracy <= best.accuracy and best.accuracy > -inf:
                break
            best = max(best, Grown(accuracy, width, cells))
        return best

    def network(self, width: int, cells: int, block: dict[str, Any]) -> Candidate | None:
        """Return the network; None where its images or the limits of specs leave no room for so many cells."""
        backbone = [{**_CONV, "out_channels": width}]
        for number in range(1, cells + 1):
            width = ceil(width * (1 + 2.0 ** (1 - number)))  # twice as wide, half as much again, a quarter, ...
            backbone += [_POOL, {**block, "out_channels": width}]
        return self.space.candidate_or_none({"backbone": backbone})


class CellGrowth:
    """Cells of NAS-Bench-201: an identity from input to output, then one way through the nodes after the other.

    What is added is the least that changes the network: a way through an unused node, or an edge between used ones.
    Of the operations that pay, the one with the most weights is taken. The identity stays.
    """

    WAYS = (((0, 1), (1, 3)), ((0, 2), (2, 3)), ((1, 2),))
    OPERATIONS = ("nor_conv_3x3", "nor_conv_1x1", "avg_pool_3x3")

    def __init__(self, space: CellSpace) -> None:
        self.space = space

    def walk(self, ask: Ask) -> None:
        """Grow to the end; `ask` decides."""
        best = ["skip_connect" if edge == (0, 3) else "none" for edge in EDGES]
        accuracy = ask(self.space.candidate(best))
        for way in self.WAYS:
            for operation in self.OPERATIONS:
                grown = [operation if edge in way else old for edge, old in zip(EDGES, best, strict=True)]
                found = ask(self.space.candidate(grown))
                if found > accuracy:
                    best, accuracy = grown, found
                    break
