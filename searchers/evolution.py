"""Ageing evolution: change the best of a random handful, forget the oldest."""

import math
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.training_recipe import Positive
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Form, Task
from automcu_ray.records.record import Record, pareto_front
from searchers.proposer import Proposer, SearchState

Objective = Literal["accuracy", "pareto", "scalarised"]
_CAP = 10.0  # of a share of a bound, as in uNAS


class Evolution(Proposer):
    """Regularized evolution (Real et al. 2019, arXiv:1802.01548, Algorithm 1) under hard constraints.

    Any trained network can be a parent, whoever proposed it; a refused one cannot, for its accuracy is not known. But
    where its report says which changes would make it fit, the changed network may be proposed.

    `scalarised` is the objective of uNAS (arXiv:2010.14246, and the authors' code): each selection weighs error, RAM,
    Flash and MACs at random and takes the one whose worst weighted share of its bound is least. There, limits are soft
    and everything trains; here nothing trains beyond a limit, so it only trades accuracy for room to spare.

    Args:
        task: what is searched for; its space mutates.
        seed: with the number of a proposal, its randomness.
        population: how many of the latest trained candidates can be parents.
        sample: how many of them compete to be the next parent.
        start: how many have to be there before there are children; until then chance proposes.
        objective: accuracy; pareto: any of the sample that no other one equals or beats in accuracy, RAM and Flash (the
            most accurate where no sizes are measured: on a table, or without a toolchain); or scalarised.
        repair: the chance that a refused network is proposed again with its report's fix before a parent is sought.
        error_bound: the share of wrong answers that scalarised asks for.
        macs_bound: the multiply-accumulates that scalarised asks for; None leaves them out.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network", "cell")
    name = "EvolutionSearch"

    def __init__(
        self,
        task: Task,
        *,
        seed: int = 0,
        population: Positive = 10,
        sample: Positive = 5,
        start: Positive = 5,
        objective: Objective = "accuracy",
        repair: Annotated[float, Field(ge=0, le=1)] = 0.5,
        error_bound: PositiveFloat = 0.1,
        macs_bound: Positive | None = None,
    ) -> None:
        super().__init__(task, seed=seed)
        if start > population:
            raise ConfigError(
                f"searcher.start is {start}, but only {population} are kept (searcher.population), so that there would "
                f"never be children: set searcher.start={population} or less."
            )
        self.sample, self.start, self.objective, self.repair = sample, start, objective, repair
        limits = {"ram": task.ram_limit_bytes, "flash": task.flash_limit_bytes, "macs": macs_bound}
        self.bounds = {"error": error_bound} | {name: limit for name, limit in limits.items() if limit is not None}
        self.living: deque[Record] = deque(maxlen=population)  # full: appending drops the oldest
        self.repaired: deque[Candidate] = deque(maxlen=population)

    def propose(self, state: SearchState) -> Candidate:
        repaired = [candidate for candidate in self.repaired if candidate.hash not in state.known]
        if repaired and state.rng.random() < self.repair:
            return repaired[-1]
        child = state.promising(lambda: self._draw(state.rng))
        if child.hash in state.known:  # no neighbour is left
            return state.promising(lambda: self.task.choices.sample(state.rng))
        return child

    def observe(self, record: Record) -> None:
        candidate, report = record.candidate, record.feasibility
        counts = record.scored or (self.objective == "scalarised" and math.isfinite(record.accuracy))
        if counts and self.task.choices.holds(candidate):
            self.living.append(record)
        if candidate.spec is not None and record.status == "infeasible" and report is not None and report.fixes:
            repaired = self.task.space.changed(candidate, report.fixes)
            if repaired is not None:
                self.repaired.append(repaired)

    def _draw(self, rng: Random) -> Candidate:
        """Return a child of the best of a random handful; a random candidate until there are enough."""
        space = self.task.choices
        if len(self.living) < self.start:
            return space.sample(rng)
        handful = rng.sample(list(self.living), min(self.sample, len(self.living)))
        return space.mutate(self.select(handful, rng).candidate, rng)

    def select(self, handful: Sequence[Record], rng: Random) -> Record:
        """Return the record of a handful that becomes the next parent."""
        if self.objective == "pareto" and (front := pareto_front(handful)):
            return rng.choice(front)
        if self.objective == "scalarised":
            weights = {name: 1 - rng.random() for name in self.bounds}  # above 0
            return min(handful, key=lambda record: self._worst_share(record, weights))
        return max(handful, key=lambda record: record.score)

    def _worst_share(self, record: Record, weights: dict[str, float]) -> float:
        """Return the largest share of a bound over its weight; what was not measured does not count."""
        found: dict[str, float | None] = {"error": 1 - record.accuracy}
        if (report := record.feasibility) is not None:
            found |= {"ram": report.least_ram_bytes, "flash": report.flash_bytes, "macs": report.macs}
        shares = {name: value / self.bounds[name] for name, value in found.items() if value and name in self.bounds}
        return max((min(share, _CAP) / weights[name] for name, share in shares.items()), default=0.0)
