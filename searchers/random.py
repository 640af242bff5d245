"""Random search: the baseline that every searcher has to beat."""

from typing import ClassVar

from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Form
from searchers.proposer import Proposer, SearchState


class Random(Proposer):
    """Uniform random specs or cells (the proposal of the `w/o HAG` ablation, paper 000, section IV-D).

    A candidate that is known, or covered by an earlier refusal, is drawn again. What the analytic bound refuses is
    proposed all the same: the share of random networks that fit is the baseline of all other searchers.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network", "cell")
    name = "RandomSearch"

    def propose(self, state: SearchState) -> Candidate:
        return state.promising(lambda: self.task.choices.sample(state.rng), check_bounds=False)
