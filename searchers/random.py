"""Random search: the baseline that every searcher has to beat."""

from automcu_ray.record import Candidate
from searchers.base import BaseSearcher


class RandomSearch(BaseSearcher):
    """Uniform random specs (the proposal of the `w/o HAG` ablation, paper 000, section IV-D)."""

    def propose(self) -> Candidate:
        return self.task.space.sample(self.rng)
