"""Bayesian optimisation: Optuna's samplers answer, one after the other, the questions that the space asks."""

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from automcu_ray.record import Candidate, Record
from automcu_ray.task import Form, Task
from searchers.base import BaseSearcher

optuna.logging.set_verbosity(optuna.logging.WARNING)


class BayesianSearch(BaseSearcher):
    """Optuna (Akiba et al. 2019, arXiv:1907.10902) behind this project's contract: define-by-run over the space.

    Every record with a score counts, whoever proposed it. A refused candidate counts as one without any accuracy.

    Args:
        task: what is searched for; its space asks.
        seed: with the number of a proposal, its randomness.
        sampler: tpe (multivariate) or nsga2.
        startup: how many candidates chance proposes first.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network", "cell")

    def __init__(
        self, task: Task, *, seed: int = 0, sampler: Literal["tpe", "nsga2"] = "tpe", startup: int = 10
    ) -> None:
        super().__init__(task, seed=seed)
        self.sampler, self.startup = sampler, startup
        self.trials: list[FrozenTrial] = []

    def propose(self) -> Candidate:
        study = optuna.create_study(direction="maximize", sampler=self._sampler())
        study.add_trials(self.trials)
        return self.unseen(lambda: self._ask(study))

    def observe(self, record: Record) -> None:
        if record.status not in ("ok", "infeasible"):
            return
        answers = self.task.choices.answers(record.candidate)
        if answers is None:
            return  # of another space: a point to evaluate, a language model's width
        trial = create_trial(
            params={name: values.index(value) for name, (value, values) in answers.items()},
            distributions={name: CategoricalDistribution(range(len(values))) for name, (_, values) in answers.items()},
            value=record.score if record.status == "ok" else 0.0,
        )
        self.trials.append(trial)

    def _ask(self, study: optuna.Study) -> Candidate:
        while True:
            trial = study.ask()
            found = self.task.choices.compose(partial(_choose, trial))
            if found is not None:
                return found
            study.tell(trial, state=TrialState.FAIL)  # its layers do not fit together

    def _sampler(self) -> optuna.samplers.BaseSampler:
        seed = self.rng.getrandbits(32)
        if self.sampler == "nsga2":
            return optuna.samplers.NSGAIISampler(seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of `group`, which branches need
            return optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, n_startup_trials=self.startup)


def _choose(trial: Trial, name: str, values: Sequence[Any]) -> Any:
    return values[trial.suggest_categorical(name, range(len(values)))]
