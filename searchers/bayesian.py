"""Bayesian optimisation: Optuna's samplers choose the values of the space's questions."""

import heapq
import math
from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar, Literal, NamedTuple

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.training_recipe import Positive
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.search_space import Question
from automcu_ray.problem.task import Form, Task
from automcu_ray.records.record import Record
from automcu_ray.sizing.near_misses import excess
from searchers.proposer import Proposer, SearchState

optuna.logging.set_verbosity(optuna.logging.WARNING)

_TERM = 128  # lessons, after which only the best and the latest are kept: time per proposal stays flat
_BEST, _LATEST = 28, 100
_ASKS = 8  # of a sampler for one proposal: each takes some 20 ms in a space of networks
_PARENTS = 2  # of a child of nsga2
_GENERATION = "NSGAIISampler:generation"  # where Optuna 5 keeps it


class _Lesson(NamedTuple):
    """One record as Optuna sees it: answers by the index of their value, and the share over the limits (0: it fits)."""

    number: int
    answers: dict[str, int]
    score: float
    over: float

    @property
    def rank(self) -> tuple[float, float]:
        return -self.over, self.score


class Bayesian(Proposer):
    """Samplers of Optuna (Akiba et al. 2019, arXiv:1907.10902).

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
    name = "BayesianSearch"

    def __init__(
        self, task: Task, *, seed: int = 0, sampler: Literal["tpe", "nsga2"] = "tpe", startup: Positive = 10
    ) -> None:
        super().__init__(task, seed=seed)
        if sampler == "nsga2" and startup < _PARENTS:
            raise ConfigError(
                f"searcher.startup must be {_PARENTS} or more with nsga2, which mixes two parents, found {startup}."
            )
        self.sampler, self.startup = sampler, startup
        self.questions = {str(asked): asked.values for asked in task.choices.questions if len(asked.values) > 1}
        self.space: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(range(len(values))) for name, values in self.questions.items()
        }
        self.lessons: list[_Lesson] = []
        self._study: optuna.Study | None = None  # of the last lessons; made anew from them at any time
        self._earlier: list[_Lesson] = []  # lessons of terms before, those that are kept
        self._told = self._term = 0

    def propose(self, state: SearchState) -> Candidate:
        rng = state.rng
        study, sampler_seed = self._informed(), rng.getrandbits(32)
        sampler: BaseSampler
        if self.sampler == "nsga2":
            sampler = NSGAIISampler(seed=sampler_seed, population_size=self.startup)
            # The parents of each generation are chosen from the first one on. Asked for the last generation's alone,
            # Optuna works backwards, one call inside another, beyond Python's limit in a long run; and parents come in
            # another order when they are chosen than when they are looked up afterwards.
            for generation in range(1, self._told // self.startup + 1):
                sampler.get_parent_population(study, generation)
        else:
            sampler = TPESampler(
                seed=sampler_seed, multivariate=True, n_startup_trials=self.startup, constant_liar=False
            )
        asked = study.ask()  # samplers want a running trial, which is told as failed in the end
        (trial,) = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        asks = iter(range(_ASKS))  # the sampler may return known networks only; then chance proposes

        def draw() -> Candidate:
            used_up = next(asks, None) is None
            return self.task.choices.sample(rng) if used_up else self._ask(study, sampler, trial, rng)

        found = state.promising(draw)
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
        told = {str(question): question.values.index(value) for question, value in asked.items()}
        answers |= {name: at for name, at in told.items() if name in answers}
        score = record.score if math.isfinite(record.score) else 0.0
        over = 0.0 if record.status == "ok" else excess(record) or 1.0  # as one that needs twice the limit
        self.lessons.append(_Lesson(len(self.lessons), answers, score, over))

    def _ask(self, study: optuna.Study, sampler: BaseSampler, trial: FrozenTrial, rng: Random) -> Candidate:
        """Return the first network whose layers fit together; what the sampler leaves open, chance answers."""
        while True:
            found = sampler.sample_relative(study, trial, self.space)  # {} at the start
            answers = {name: self.questions[name][int(index)] for name, index in found.items()}

            def answer(question: Question, answers: dict[str, Any] = answers) -> Any:
                name = str(question)
                return answers[name] if name in answers else rng.choice(question.values)

            candidate = self.task.choices.compose(answer)
            if candidate is not None:
                return candidate

    def _informed(self) -> optuna.Study:
        """Return a study of the lessons; once there are many, of the best and the latest alone."""
        term = len(self.lessons) // _TERM * _TERM
        if self._study is None or self._term < term:
            self._study, self._term, self._told = optuna.create_study(direction="maximize"), term, 0
            self._earlier = _kept(self.lessons[:term])
        known = [*self._earlier, *self.lessons[term:]]
        for place, lesson in enumerate(known[self._told :], start=self._told):
            trial = create_trial(
                params=lesson.answers,
                distributions=self.space,
                value=lesson.score,
                constraints={"over": lesson.over},
                system_attrs={_GENERATION: place // self.startup},
            )
            self._study.add_trial(trial)
        self._told = len(known)
        return self._study

    def __getstate__(self) -> dict[str, Any]:
        """A study is large, and follows from the lessons."""
        return {**self.__dict__, "_study": None, "_earlier": [], "_told": 0, "_term": 0}


def _kept(lessons: Sequence[_Lesson]) -> list[_Lesson]:
    if len(lessons) <= _BEST + _LATEST:
        return list(lessons)
    best = heapq.nlargest(_BEST, lessons[:-_LATEST], key=lambda lesson: lesson.rank)
    return [*sorted(best), *lessons[-_LATEST:]]
