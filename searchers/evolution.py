"""Ageing evolution: change the best of a random handful, forget the oldest."""

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Literal

from automcu_ray.record import Candidate, Record
from automcu_ray.task import Form, Task
from searchers.base import BaseSearcher
from searchers.history import pareto_front


class EvolutionSearch(BaseSearcher):
    """Regularized evolution (Real et al. 2019, arXiv:1802.01548, Algorithm 1) under hard constraints.

    Args:
        task: what is searched for; its space mutates.
        seed: with the number of a proposal, its randomness.
        population: how many of the latest trained candidates can be parents; before that, chance proposes.
        sample: how many of them compete to be the next parent.
        objective: accuracy, or pareto: any of the sample that no other one equals or beats in accuracy, RAM and Flash.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network", "cell")

    def __init__(
        self,
        task: Task,
        *,
        seed: int = 0,
        population: int = 10,
        sample: int = 5,
        objective: Literal["accuracy", "pareto"] = "accuracy",
    ) -> None:
        super().__init__(task, seed=seed)
        self.size, self.sample, self.objective = population, sample, objective
        self.living: deque[Record] = deque(maxlen=population)  # full: appending drops the oldest

    def propose(self) -> Candidate:
        child = self.unseen(self._child)
        if child.hash in self.seen:  # no neighbour is left
            return self.unseen(lambda: self.task.choices.sample(self.rng))
        return child

    def observe(self, record: Record) -> None:
        if record.status == "ok":
            self.living.append(record)

    def _child(self) -> Candidate:
        space = self.task.choices
        if len(self.living) < self.size:
            return space.sample(self.rng)
        return space.mutate(self._best(self.rng.sample(list(self.living), self.sample)).candidate, self.rng)

    def _best(self, handful: Sequence[Record]) -> Record:
        if self.objective == "pareto":
            return self.rng.choice(pareto_front(handful))
        return max(handful, key=lambda record: record.score)
