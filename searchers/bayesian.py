"""Bayesian optimisation: Optuna's samplers answer the questions that the space asks."""

import heapq
import math
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, ClassVar, Literal, NamedTuple

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from automcu_ray.errors import ConfigError
from automcu_ray.misses import excess
from automcu_ray.protocol import Positive
from automcu_ray.record import Candidate, Record
from automcu_ray.task import Form, Task
from searchers.base import BaseSearcher

optuna.logging.set_verbosity(optuna.logging.WARNING)

_TERM = 128  # lessons, after which only the best and the latest are kept: time per proposal stays flat
_BEST, _LATEST = 28, 100
_ASKS = 8  # of a sampler for one proposal: each takes some 20 ms in a space of networks
_PARENTS = 2  # of a child of nsga2
_GENERATION = "NSGAIISampler:generation"  # where Optuna 5 keeps it


class _Lesson(NamedTuple):
    """What one record teaches: an answer, by its index, to every question; the score, and the share over the limits."""

    number: int
    answers: dict[str, int]
    score: float
    over: float

    @property
    def rank(self) -> tuple[float, float]:
        return -self.over, self.score


class BayesianSearch(BaseSearcher):
    """Optuna (Akiba et al. 2019, arXiv:1907.10902) behind this project's contract.

    Every candidate is one answer to each question of the space; to those that its network does not depend on, such as
    the kernel of a layer that has none, chance answers. So all trials share one flat space, which both samplers treat
    as a whole. Every record counts that was trained or refused, whoever proposed it; a width between those of
    the space counts as the nearest of them. How far a network is over its limits is a constraint.

    Args:
        task: what is searched for; its space asks.
        seed: with the number of a proposal, its randomness.
        sampler: tpe (multivariate) or nsga2.
        startup: how many candidates chance proposes before tpe does, and how large a generation of nsga2 is.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network", "cell")

    def __init__(
        self, task: Task, *, seed: int = 0, sampler: Literal["tpe", "nsga2"] = "tpe", startup: Positive = 10
    ) -> None:
        super().__init__(task, seed=seed)
        if sampler == "nsga2" and startup < _PARENTS:
            raise ConfigError(
                f"searcher.startup must be {_PARENTS} or more with nsga2, which mixes two parents, found {startup}."
            )
        self.sampler, self.startup = sampler, startup
        self.questions = {name: values for name, values in task.choices.questions.items() if len(values) > 1}
        self.space: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(range(len(values))) for name, values in self.questions.items()
        }
        self.lessons: list[_Lesson] = []
        self._study: optuna.Study | None = None  # of the last lessons; made anew from them at any time
        self._earlier: list[_Lesson] = []  # lessons of terms before, those that are kept
        self._told = self._term = 0

    def propose(self) -> Candidate:
        study, sampler = self._informed(), self._sampler()
        if isinstance(sampler, NSGAIISampler):
            self._settle_generations(study, sampler)
        asked = study.ask()  # a trial, in whose name the sampler is asked as often as it takes
        (trial,) = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        asks = iter(range(_ASKS))  # a sampler may insist on what is known; then chance proposes

        def draw() -> Candidate:
            insists = next(asks, None) is None
            return self.task.choices.sample(self.rng) if insists else self._ask(study, sampler, trial)

        found = self.promising(draw)
        study.tell(asked, state=TrialState.FAIL)
        return found

    def observe(self, record: Record) -> None:
        candidate = record.candidate
        if record.status not in ("ok", "infeasible") or not self.task.choices.holds(candidate):
            return
        asked = self.task.choices.answers(candidate)
        if asked is None:
            return  # more layers than the space asks for
        rng = Random(candidate.hash)
        answers = {name: rng.randrange(len(values)) for name, values in self.questions.items()}
        answers |= {name: values.index(value) for name, (value, values) in asked.items() if name in answers}
        score = record.score if math.isfinite(record.score) else 0.0
        over = 0.0 if record.status == "ok" else excess(record) or 1.0  # as one that needs twice the limit
        self.lessons.append(_Lesson(len(self.lessons), answers, score, over))

    def _ask(self, study: optuna.Study, sampler: BaseSampler, trial: FrozenTrial) -> Candidate:
        while True:
            found = sampler.sample_relative(study, trial, self.space)  # {} at the start
            answers = {name: self.questions[name][int(index)] for name, index in found.items()}
            candidate = self.task.choices.compose(partial(self._answer, answers))
            if candidate is not None:  # its layers fit together
                return candidate

    def _answer(self, answers: dict[str, Any], name: str, values: Sequence[Any]) -> Any:
        return answers[name] if name in answers else self.rng.choice(values)

    def _informed(self) -> optuna.Study:
        """Return a study that knows the lessons, or the best and latest of them: which ones, their number decides."""
        term = len(self.lessons) // _TERM * _TERM
        if self._study is None or self._term < term:
            self._study, self._term, self._told = optuna.create_study(direction="maximize"), term, 0
            self._earlier = _kept(self.lessons[:term])
        known = [*self._earlier, *self.lessons[term:]]
        self._study.add_trials([self._trial(known[place], place) for place in range(self._told, len(known))])
        self._told = len(known)
        return self._study

    def _settle_generations(self, study: optuna.Study, sampler: NSGAIISampler) -> None:
        """Let the sampler choose the parents of each generation, the first one first.

        Asked for the last generation's alone, Optuna works backwards, one call inside another, beyond Python's limit in
        a long run; and parents come in another order when they are chosen than when they are looked up afterwards.
        """
        for generation in range(1, self._told // self.startup + 1):
            sampler.get_parent_population(study, generation)

    def _trial(self, lesson: _Lesson, place: int) -> FrozenTrial:
        return create_trial(
            params=lesson.answers,
            distributions=self.space,
            value=lesson.score,
            constraints={"over": lesson.over},
            system_attrs={_GENERATION: place // self.startup},
        )

    def _sampler(self) -> BaseSampler:
        seed = self.rng.getrandbits(32)
        if self.sampler == "nsga2":
            return NSGAIISampler(seed=seed, population_size=self.startup)
        return TPESampler(seed=seed, multivariate=True, n_startup_trials=self.startup, constant_liar=False)

    def __getstate__(self) -> dict[str, Any]:
        """A study is large, and follows from the lessons."""
        return {**self.__dict__, "_study": None, "_earlier": [], "_told": 0, "_term": 0}


def _kept(lessons: Sequence[_Lesson]) -> list[_Lesson]:
    if len(lessons) <= _BEST + _LATEST:
        return list(lessons)
    best = heapq.nlargest(_BEST, lessons[:-_LATEST], key=lambda lesson: lesson.rank)
    return [*sorted(best), *lessons[-_LATEST:]]
