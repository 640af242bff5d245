"""Random search: the baseline that every searcher has to beat."""

from typing import ClassVar

from automcu_ray.record import Candidate
from automcu_ray.task import Form
from searchers.base import BaseSearcher


class RandomSearch(BaseSearcher):
    """Uniform random specs or cells (the proposal of the `w/o HAG` ablation, paper 000, section IV-D)."""

    proposes: ClassVar[tuple[Form, ...]] = ("network", "cell")

    def propose(self) -> Candidate:
        return self.task.choices.sample(self.rng)
