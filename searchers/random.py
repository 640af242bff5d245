"""Random search: the baseline that every searcher has to beat."""

from typing import ClassVar

from automcu_ray.record import Candidate
from automcu_ray.task import Form
from searchers.base import BaseSearcher


class RandomSearch(BaseSearcher):
    """Uniform random specs or cells (the proposal of the `w/o HAG` ablation, paper 000, section IV-D).

    What was seen, or an earlier refusal settles, is drawn again. The analytic bound is left to the gate: the share of
    chance's proposals that fit is what every other searcher's is compared with.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network", "cell")

    def propose(self) -> Candidate:
        return self.promising(lambda: self.task.choices.sample(self.rng), foresee=False)
