"""Several proposers in one run: a bandit gives the next proposal to whoever lately gained most for its cost."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeFloat, PositiveFloat

from automcu_ray.core.errors import ConfigError
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Form, Task
from automcu_ray.records.proposer_gains import ProposerGains
from automcu_ray.records.record import Record
from automcu_ray.runtime.config import Plugin
from searchers import pick_proposer
from searchers.dialogue.llm_proposer import LLMProposer
from searchers.engines.base import Engine
from searchers.heuristics.discounted_ucb import Bandit
from searchers.llm_memory import LLMMemory
from searchers.proposer import NoMoreProposals, Proposer, SearchState

FREE, ASKING = ("capacity", "evolution"), "llm_memory"
_SECONDS_PER_HOUR = 3600.0
_OWN_SECONDS = 1.0  # of a proposal, whatever else it costs: one from a table or a duplicate is not free either


class Mixed(Proposer):
    """Proposers that share budgets, records and gate: each learns from every record, whoever proposed it.

    The reward of a proposal is its gain in the run's best score (`ProposerGains`); its cost are the seconds of engine,
    toolchain and training, money as the time that it would buy, and one second for itself. A proposer that has nothing
    ready (its engine has not answered yet) is passed over; finished answers of an engine come before everything else,
    since they are paid for. Where tokens or money are used up, the proposers that need none go on.

    The order depends on the seconds in records and on when an engine answers, so that a replay gives the same replies,
    but not always the same run: on a busy machine not even with the rules of `offline`.

    Args:
        task: what is searched for.
        seed: of every proposer.
        engine: what answers the one proposer that asks an engine; None is the rule-based `offline`.
        proposers: names of searchers, perhaps with options; at most one that asks an engine. Default `capacity` and
            `evolution`, and `llm_memory` where a language model answers: rules add nothing to these two, and a search
            of a table is over before a model has answered.
        discount: what remains of a record's weight after each further one.
        exploration: how much a proposer that has not been asked for long is worth.
        usd_per_hour: what an hour of the machine is worth, to compare it with an engine's price.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network", "cell")

    def __init__(
        self,
        task: Task,
        *,
        seed: int = 0,
        engine: Engine | None = None,
        proposers: tuple[Plugin, ...] | None = None,
        discount: Annotated[float, Field(gt=0, lt=1)] = 0.95,
        exploration: NonNegativeFloat = 0.25,
        usd_per_hour: PositiveFloat = 1.0,
    ) -> None:
        super().__init__(task, seed=seed)
        proposers = _usual(task, engine) if proposers is None else proposers
        _check(proposers)
        self.proposers = {plugin.name: pick_proposer(plugin, task, seed=seed, engine=engine) for plugin in proposers}
        asking = [name for name, proposer in self.proposers.items() if isinstance(proposer, LLMProposer)]
        if len(asking) > 1:
            raise ConfigError(f"searcher.proposers: one may ask an engine, found {' and '.join(asking)}: take one.")
        if self.asking is not None:
            self.asking.free = None  # the bandit says who proposes while an engine thinks
        self.engine = self.asking.engine if self.asking is not None else None
        self.usd_per_hour = usd_per_hour
        self.bandit = Bandit(list(self.proposers), discount=discount, exploration=exploration)
        self.gains = ProposerGains()
        self.under_way: Counter[str] = Counter()  # proposals without a record

    @property
    def asking(self) -> LLMProposer | None:
        """The proposer that asks an engine."""
        return next((found for found in self.proposers.values() if isinstance(found, LLMProposer)), None)

    def propose(self, state: SearchState) -> Sequence[Candidate] | None:
        ranking = self._ranking()
        if self.asking is not None and (found := self.asking.collect()) is not None:
            return self._signed(self.asking.table_name, found)
        if state.closed:  # nobody is asked any more, but what was ordered before comes
            ranking = [] if self.asking is None else [self.asking.table_name]
        stuck = {}
        for name in ranking:
            try:
                proposal = self.proposers[name].propose(state)
            except NoMoreProposals as error:
                stuck[name] = str(error)
                continue
            if proposal is not None:
                return self._signed(name, [proposal] if isinstance(proposal, Candidate) else proposal)
        if len(stuck) == len(self.proposers):
            raise NoMoreProposals("; ".join(dict.fromkeys(stuck[name] for name in self.proposers)))
        return None

    def observe(self, record: Record) -> None:
        for proposer in self.proposers.values():
            proposer.observe(record)
        gain, name = self.gains.add(record), self._whose(record.candidate)
        if name in self.proposers:
            self.under_way[name] -= 1
            self.bandit.learn(name, gain, self.cost_seconds(record))

    def resume(self, proposed: Collection[Candidate], pending: Collection[Candidate]) -> None:
        self.under_way = Counter(self._whose(candidate) for candidate in pending)
        for proposer in self.proposers.values():
            proposer.resume(proposed, pending)

    def close(self) -> None:
        for proposer in self.proposers.values():
            proposer.close()

    @property
    def ordered(self) -> int:
        return sum(proposer.ordered for proposer in self.proposers.values())

    def _ranking(self) -> list[str]:
        """Return the proposers, best first; what a conversation was asked for counts as under way.

        A model comes last until every other proposer has an outcome: before, there is nothing that it could learn from,
        and the first question to one on this machine loads it.
        """
        asking = self.asking
        if asking is None:
            return self.bandit.ranking(self.under_way)
        name = asking.table_name
        ranking = self.bandit.ranking(self.under_way + Counter({name: asking.coming}))
        others = [other for other in ranking if other != name]
        if asking.owed:
            return [name, *others]
        early = not asking.engine.instant and not all(self.bandit.arms[other].pulls for other in others)
        return [*others, name] if early else ranking

    def _signed(self, name: str, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return candidates that say who proposed them; rules that stand in for a language model say so themselves."""
        self.under_way[name] += len(candidates)
        return [candidate.replace(proposer=candidate.proposer or name) for candidate in candidates]

    def _whose(self, candidate: Candidate) -> str:
        """Return the name of the proposer; of points to evaluate it is none of ours."""
        return self.asking.table_name if candidate.talk and self.asking is not None else candidate.proposer

    def cost_seconds(self, record: Record) -> float:
        """Return what a record has cost: its seconds, and those that its money would buy."""
        bought_s = record.cost.usd / self.usd_per_hour * _SECONDS_PER_HOUR
        return record.cost.seconds + bought_s + _OWN_SECONDS


def _usual(task: Task, engine: Engine | None) -> tuple[Plugin, ...]:
    answers = engine is not None and engine.is_language_model and not task.on_table
    asks = answers and task.form in LLMMemory.proposes
    return tuple(Plugin(name=name) for name in (*FREE, *([ASKING] if asks else [])))


def _check(proposers: Sequence[Plugin]) -> None:
    names = [plugin.name for plugin in proposers]
    if not names:
        raise ConfigError("searcher.proposers: name at least one searcher, such as [capacity, evolution].")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"searcher.proposers: each takes part once at most, found {twice[0]!r} twice.")
    if "mixed" in names:
        raise ConfigError("searcher.proposers: 'mixed' cannot be one of its own proposers: name the others.")
    if code := [plugin.name for plugin in proposers if plugin.options.get("form") == "code"]:
        raise ConfigError(f"searcher.proposers: {code[0]!r} would write code, which the others cannot change: no form.")
