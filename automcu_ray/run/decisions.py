"""The supervisor's decisions: each is a line of the journal before it is carried out, and stands after a resume."""

import time
from collections.abc import Sequence
from typing import Any

from ray import tune
from rich.console import Console

from automcu_ray.core.objective import Aim
from automcu_ray.records.events import Agent, Decided, Decision
from automcu_ray.records.journal import Repository
from automcu_ray.records.record import Finalist, Record
from automcu_ray.reports.console import say
from automcu_ray.run.plan import Plan
from searchers.shared.shared_agents import SharedAgents
from searchers.tune_searcher import TuneSearcher

_REASON_CHARS = 300


class Decisions:
    """Decides once: what the journal holds already is neither decided nor written again."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository

    def of(self, decision: Decision) -> list[Decided]:
        """Return the decisions of a kind, oldest first."""
        return [one for one in self.repository.all(Decided) if one.decision == decision]

    def make(self, decision: Decision, reason: str, *, agent: Agent = "", numbers: Sequence[int] = ()) -> None:
        """Write a decision down, unless the very same one stands."""
        if not any((one.agent, one.numbers) == (agent, tuple(numbers)) for one in self.of(decision)):
            self.repository.append(made(decision, reason, agent=agent, numbers=numbers))


def made(decision: Decision, reason: str, *, agent: Agent = "", numbers: Sequence[int] = ()) -> Decided:
    """Return a decision of this moment, its reason in one line."""
    line = " ".join(reason.split())[:_REASON_CHARS]
    return Decided(decision=decision, agent=agent, numbers=tuple(numbers), reason=line, at_s=time.time())


def at_the_end(searcher: TuneSearcher, seconds: float | None) -> list[Decided]:
    """Return what is decided where a search has ended; agents that share a conversation have chosen, or failed."""
    ended = made("end_search", why_search_ended(searcher, seconds))
    if not isinstance(searcher, SharedAgents):
        return [ended]
    if searcher.chosen is None:
        return [ended, made("fail", f"nothing is deployed: {ended.reason}")]
    return [ended, made("train_fully", "the agents chose it", agent="training", numbers=[searcher.chosen])]


class Reassignment(tune.Callback):  # type: ignore[misc]
    """Writes down what work was lost with its worker and is handed out again: Ray Tune and the gate do that.

    A training is tried once more, a check until its candidate has seen three toolchain processes die.
    """

    def __init__(self, searcher: TuneSearcher, console: Console) -> None:
        self.searcher, self.console = searcher, console

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        while self.searcher.gate.asked_again:
            self._again("evaluation", self.searcher.gate.asked_again.popleft().number, "its toolchain's process died")

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._again("training", int(trial.config["number"]), "its worker died")

    def _again(self, agent: Agent, number: int, lost: str) -> None:
        self.searcher.repository.append(made("reassign", lost, agent=agent, numbers=[number]))
        say(self.console, f"#{number:<4} {lost}: handed out again ({agent})")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "console": None}  # for Tune's snapshot, which nobody reads


# Reasons, in words ------------------------------------------------------------------------------------------


def why_search(plan: Plan) -> str:
    """Return what is handed out when a search begins: who proposes, who checks, who trains, how long."""
    if plan.config.supervisor.agents == "shared":
        return f"agents share a conversation with engine {plan.engine and plan.engine.name}, and call the stages"
    asked = "" if plan.engine is None else f" (engine {plan.engine.name})"
    checks = "analytic bounds check" if plan.backend is None else f"{plan.backend.name} checks"
    return (
        f"searcher {plan.config.searcher.name}{asked} proposes, {checks}, what fits is trained, until "
        f"{plan.config.budget.trained} are trained"
    )


def why_search_ended(searcher: TuneSearcher, seconds: float | None) -> str:
    """Return why nothing more is searched; `seconds` is the time budget."""
    budget = searcher.budget
    if searcher.early_end.reason:
        return searcher.early_end.reason
    if budget.trained is not None and searcher.trained >= budget.trained:
        return f"the budget is spent: {searcher.trained} candidates are trained"
    if searcher.gave_up:
        return f"the searcher gave up: {searcher.gave_up}"
    if searcher.exhausted:
        return f"the budget is spent: {len(searcher.repository.proposed)} candidates were proposed"
    return f"the time is up: {seconds:g} s" if seconds is not None else "it was ended"


def why_finalists(chosen: Sequence[Record], done: Sequence[Finalist], aim: Aim | None) -> str:
    """Return why these candidates are trained fully."""
    named = ", ".join(f"#{record.candidate.number} ({_told(record)})" for record in chosen)
    if not done:
        return f"of all trained candidates these promise most: {named}"
    if not any(one.usable for one in done):
        return f"no finalist so far can ship; the next best: {named}"
    return f"cheaper, and perhaps accurate enough: {named}" if aim else f"wanted beside the finalists so far: {named}"


def why_shipped(finalists: Sequence[Finalist], ships: dict[str, Finalist], aim: Aim | None) -> str:
    """Return why these finalists ship."""
    usable = sum(one.usable for one in finalists)
    best = "the most accurate on validation" if aim is None else f"the least {aim.objective} that is accurate enough"
    named = ", ".join(f"{name.replace('_', ' ')} #{one.number} ({_accuracy(one)})" for name, one in ships.items())
    return (
        f"one finalist can ship: {named}"
        if usable == 1
        else f"of {usable} finalists that can ship the winner is {best}: {named}"
    )


def why_no_winner(finalists: Sequence[Finalist]) -> str:
    """Return why nothing ships."""
    said = "; ".join(f"#{one.number}: {one.reason}" for one in finalists if one.reason)
    return f"no finalist can ship: {said}" if said else "no candidate was trained"


def _accuracy(finalist: Finalist) -> str:
    return "not measured" if finalist.training is None else finalist.training.told.removeprefix("accuracy ")


def _told(record: Record) -> str:
    return "not measured" if record.training is None else record.training.told.removeprefix("accuracy ")
