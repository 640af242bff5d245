"""Several proposers in one run: a bandit gives the next proposal to whoever lately gained most for its cost."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeFloat, PositiveFloat

from automcu_ray.config import Plugin
from automcu_ray.credit import Credits
from automcu_ray.errors import ConfigError
from automcu_ray.record import Candidate, Record
from automcu_ray.repository import Repository
from automcu_ray.task import Form, Task
from searchers import pick_searcher
from searchers.bandit import Bandit
from searchers.base import BaseSearcher
from searchers.engine_search import EngineSearch
from searchers.engines.base import Engine

PROPOSERS = tuple(Plugin(name=name) for name in ("capacity", "evolution", "llm_memory"))
_LENT = (  # what a proposer asks of its run
    *("repository", "gate", "rng", "waiting", "ready", "live", "seen", "refusals", "trained", "spent", "lookahead"),
    *("trained_budget", "proposal_budget", "token_budget", "usd_budget", "trains_refused"),
)
_SECONDS_PER_HOUR = 3600.0
_OWN_SECONDS = 1.0  # of a proposal, whatever else it costs: one from a table or a duplicate is not free either


class MixedSearch(BaseSearcher):
    """Proposers that share budgets, records and gate: each learns from every record, whoever proposed it.

    The reward of a proposal is its gain in the run's best score (`Credits`); its cost are the seconds of engine,
    toolchain and training, money as the time that it would buy, and one second for itself. A proposer that has nothing
    ready (an engine that is still writing) is passed over; what an engine has finished comes before everything else,
    for it is paid for. Where tokens or money are used up, those that need none go on.

    All that decides is worked out from records and from what is under way. The seconds in them are the machine's, and
    an engine that takes time answers when it does, so that a cassette gives the same replies, but not always the same
    run: on a busy machine not even with the rules of `offline`.

    Args:
        task: what is searched for.
        seed: of every proposer.
        engine: what answers the one proposer that asks an engine; None is the rule-based `offline`.
        proposers: names of searchers, perhaps with options; at most one that asks an engine.
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
        proposers: tuple[Plugin, ...] = PROPOSERS,
        discount: Annotated[float, Field(gt=0, lt=1)] = 0.95,
        exploration: NonNegativeFloat = 0.25,
        usd_per_hour: PositiveFloat = 1.0,
    ) -> None:
        super().__init__(task, seed=seed)
        _check(proposers)
        self.proposers = {plugin.name: pick_searcher(plugin, task, seed=seed, engine=engine) for plugin in proposers}
        asking = [name for name, proposer in self.proposers.items() if isinstance(proposer, EngineSearch)]
        if len(asking) > 1:
            raise ConfigError(f"searcher.proposers: one may ask an engine, found {' and '.join(asking)}: take one.")
        self.usd_per_hour = usd_per_hour
        self.bandit = Bandit(list(self.proposers), discount=discount, exploration=exploration)
        self.credits = Credits()
        self.under_way: Counter[str] = Counter()  # proposals without a record

    @property
    def asking(self) -> EngineSearch | None:
        """The proposer that asks an engine."""
        return next((found for found in self.proposers.values() if isinstance(found, EngineSearch)), None)

    def propose(self) -> Sequence[Candidate] | None:
        self._lend()
        ranking = self._ranking()
        if self.asking is not None and (found := self.asking.collect()) is not None:
            return self._signed(self.asking.name, found)
        if self.gave_up:  # nobody is asked any more, but what was ordered before comes
            return self._last_orders()
        for name in ranking:
            proposal = self.proposers[name].propose()
            if proposal is not None:
                return self._signed(name, [proposal] if isinstance(proposal, Candidate) else proposal)
        stuck = [proposer.gave_up or proposer.overspent for proposer in self.proposers.values()]
        if all(stuck):
            self.gave_up = "; ".join(dict.fromkeys(stuck))
        return None

    def observe(self, record: Record) -> None:
        self._lend()
        for proposer in self.proposers.values():
            proposer.observe(record)
        gain, name = self.credits.add(record), self._whose(record.candidate)
        if name in self.proposers:
            self.under_way[name] -= 1
            self.bandit.learn(name, gain, self._cost(record))

    def replay(self, repository: Repository) -> None:
        super().replay(repository)
        self.under_way = Counter(self._whose(candidate) for candidate in repository.pending())
        if self.asking is not None:
            self.asking.count_talks(repository)

    def close(self) -> None:
        for proposer in self.proposers.values():
            proposer.close()

    @property
    def ordered(self) -> int:
        return sum(proposer.ordered for proposer in self.proposers.values())

    @property
    def overspent(self) -> str:
        """Empty: whoever asks an engine stops by itself, and the others go on."""
        return ""

    def _lend(self) -> None:
        """Let every proposer see the run as it stands now."""
        for proposer in self.proposers.values():
            for attribute in _LENT:
                setattr(proposer, attribute, getattr(self, attribute))

    def _ranking(self) -> list[str]:
        """Return the proposers, best first; what a conversation was asked for counts as under way."""
        asking = self.asking
        if asking is None:
            return self.bandit.ranking(self.under_way)
        name = asking.name
        ranking = self.bandit.ranking(self.under_way + Counter({name: asking.coming}))
        return [name, *(other for other in ranking if other != name)] if asking.owed else ranking

    def _last_orders(self) -> Sequence[Candidate] | None:
        """Return what comes of conversations that are under way, or that were paid for before a kill."""
        asking = self.asking
        if asking is None:
            return None
        asking.gave_up = asking.gave_up or self.gave_up
        found = asking.propose()
        return None if found is None else self._signed(asking.name, found)

    def _signed(self, name: str, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return candidates that say who proposed them; rules that stand in for a language model say so themselves."""
        self.under_way[name] += len(candidates)
        return [candidate.model_copy(update={"proposer": candidate.proposer or name}) for candidate in candidates]

    def _whose(self, candidate: Candidate) -> str:
        """Return the name of the proposer; of points to evaluate it is none of ours."""
        return self.asking.name if candidate.talk and self.asking is not None else candidate.proposer

    def _cost(self, record: Record) -> float:
        """Return what a record has cost, in seconds."""
        bought_s = record.cost.usd / self.usd_per_hour * _SECONDS_PER_HOUR
        return record.cost.seconds + bought_s + _OWN_SECONDS


def asking(searcher: BaseSearcher) -> EngineSearch | None:
    """Return the searcher if it asks an engine, or the proposer of a mixed one that does, or None."""
    found = searcher.asking if isinstance(searcher, MixedSearch) else searcher
    return found if isinstance(found, EngineSearch) else None


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
