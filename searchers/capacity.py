"""Capacity first: the largest networks within the limits, those with residual paths before all others."""

from functools import cached_property
from random import Random
from typing import ClassVar

from automcu_ray.cell import CellSpec
from automcu_ray.cell_space import CellSpace
from automcu_ray.record import Candidate
from automcu_ray.task import Form
from searchers.base import BaseSearcher


class CapacitySearch(BaseSearcher):
    """General design knowledge and no measurement: gradients need a short way, accuracy grows with parameters."""

    proposes: ClassVar[tuple[Form, ...]] = ("cell",)

    def propose(self) -> Candidate:
        cell = self._order[(self.next_number - 1) % len(self._order)]
        return CellSpace().candidate(list(cell.operations))

    @cached_property
    def _order(self) -> list[CellSpec]:
        return CellSpace().by_capacity(Random(self.seed))
