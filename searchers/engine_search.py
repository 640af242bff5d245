"""What searchers that ask an engine have in common: conversations in threads, ahead of need and within the budget."""

import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from automcu_ray.record import Candidate, Record
from automcu_ray.repository import Repository
from automcu_ray.task import Task
from searchers.base import BaseSearcher
from searchers.engines.base import Begun, Engine, Reply, Request
from searchers.engines.offline import OfflineEngine
from searchers.talk import Talk, TalkId

_MAX_BACKOFF_S = 60.0


class _Running(NamedTuple):
    """A conversation that was begun, and how many candidates it was asked for."""

    future: "Future[list[Candidate]]"
    size: int


class _Listening(OfflineEngine):
    """Keeps what it is asked."""

    def __init__(self) -> None:
        self.heard: list[Request] = []

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        self.heard += requests
        return super().complete(requests)


class EngineSearch(BaseSearcher):
    """Keeps conversations going, hands out what they propose, and stops when the engine stays silent.

    Conversations are numbered from 1, and their proposals come in that order. What a conversation knows is what
    `learn` was told before it began: a recorded run (a cassette, or this run before it was killed) prescribes
    which records those were, so that equal requests are asked again at equal moments.

    Args:
        task: what is searched for.
        seed: with the number of a conversation, the seed of each of its requests.
        engine: what answers; None is the rule-based `offline`.
        per_talk: candidates that one conversation is asked for.
        parallel: conversations at a time; one with an engine that answers at once.
        patience: engine failures in a row after which the search stops proposing.
        backoff_s: the first wait after an engine failure; it doubles.
    """

    def __init__(
        self,
        task: Task,
        *,
        seed: int,
        engine: Engine | None,
        per_talk: int,
        parallel: int,
        patience: int,
        backoff_s: float,
    ) -> None:
        super().__init__(task, seed=seed)
        self.engine = engine or OfflineEngine()
        self.per_talk = max(1, per_talk)
        self.parallel = 1 if self.engine.instant else max(1, parallel)
        self.patience, self.backoff_s = max(1, patience), backoff_s
        self.failures = 0  # of the engine, in a row
        self.not_before_s = 0.0
        self.talks = 0  # begun
        self.records: list[Record] = []  # learned
        self._astray = False  # a recording tells of records that do not come
        self._news: dict[int, Record] = {}  # not learned yet
        self._learned: set[int] = set()
        self._running: deque[_Running] = deque()

    def learn(self, record: Record) -> None:
        """Take in one record, before the next conversation begins; here into `records`, where it is about a network."""
        if not record.engine_failed:
            self.records.append(record)

    @abstractmethod
    def talk(self, identity: TalkId) -> Talk:
        """Return the next conversation, about what has been learned; it should propose `identity.begun.size`."""

    @property
    def proposer(self) -> str:
        """Who gets the credit: this searcher, unless rules stand in for the language model."""
        return self.name if self.engine.is_language_model else self.engine.name

    @property
    def name(self) -> str:
        """The searcher's name in the table of searchers."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def owed(self) -> bool:
        """Whether the next conversation was paid for before a kill, and its candidates were lost with it."""
        return self._recorded and not self.engine.only_recorded

    @property
    def ordered(self) -> int:
        return self.coming + self._recorded

    @property
    def coming(self) -> int:
        """Candidates that conversations under way were asked for."""
        return sum(running.size for running in self._running)

    def propose(self) -> Sequence[Candidate] | None:
        self._begin()
        return self.collect()

    def collect(self) -> Sequence[Candidate] | None:
        """Return what the oldest conversation under way came to, once it is at its end; begin no other."""
        if not self._running or not self._running[0].future.done():
            return None
        candidates = self._running.popleft().future.result()
        self._count_failures(candidates)
        return candidates

    def pump(self) -> None:
        super().pump()
        stock = len(self.waiting) + self.gate.waiting + len(self.ready)
        if not self.engine.instant and stock < self.lookahead + self.per_talk - 1:
            self._begin()  # the next batch is being written while this one is checked and trained

    def observe(self, record: Record) -> None:
        self._news[record.candidate.number] = record

    def replay(self, repository: Repository) -> None:
        super().replay(repository)
        self.count_talks(repository)

    def count_talks(self, repository: Repository) -> None:
        """Go on with the conversation after the last one that has proposed."""
        self.talks = max((candidate.talk for candidate in repository.proposed.values()), default=0)

    def preview(self) -> list[Request]:
        """Return the requests of the conversation that would be held now; rules play the engine's part."""
        self.engine = listening = _Listening()
        self._learn_all_of(self._news)
        self.talk(TalkId(self.seed, self.talks + 1, Begun(size=self.per_talk))).run()
        return [request for request in listening.heard if request.role != "repair"]

    def close(self) -> None:
        self.engine.close()

    @property
    def _recorded(self) -> bool:
        """Whether the next conversation is one that has been held before."""
        return self.talks + 1 in self.engine.recorded and not self._astray

    def _begin(self) -> None:
        """Begin conversations, as many as may run at a time, but never more than the budget can still use."""
        while len(self._running) < self.parallel and time.monotonic() >= self.not_before_s:
            if self.engine.only_recorded and not self._recorded:
                self.gave_up = self.gave_up or "the recording is at its end"
            size = self.wanted()
            begun = self._get_ready(self.talks + 1, size) if size else None
            if begun is None:
                return
            self.talks += 1
            self.engine.begin(self.talks, begun)
            talk = self.talk(TalkId(self.seed, self.talks, begun))
            self._running.append(_Running(self._start(talk), begun.size))

    def _start(self, talk: Talk) -> "Future[list[Candidate]]":
        """Hold a conversation: here if that takes no time, else in a thread that nothing has to wait for."""
        future: Future[list[Candidate]] = Future()
        if self.engine.instant:
            future.set_result(talk.run())
        else:
            threading.Thread(target=lambda: future.set_result(talk.run()), name="talk", daemon=True).start()
        return future

    def wanted(self) -> int:
        """Return how many candidates the next conversation should propose; 0: it should wait."""
        if (self.gave_up or self.overspent) and not self._recorded:  # what was held then was begun before that
            return 0
        wanted, coming = self.per_talk, self.coming
        if self.trained_budget is not None:
            wanted = min(wanted, self.trained_budget - self.trained - self.in_flight - len(self.waiting) - coming)
        if self.proposal_budget is not None:
            wanted = min(wanted, self.proposal_budget - len(self.repository.proposed) - coming)
        return max(0, wanted)

    def _get_ready(self, talk: int, size: int) -> Begun | None:
        """Learn what conversation `talk` may know; None while a record is missing that it knew when recorded."""
        recorded = self.engine.recorded
        if not self._recorded:
            return Begun(known=self._learn_all_of(self._news), size=size)
        before = [number for earlier in range(1, talk + 1) if earlier in recorded for number in recorded[earlier].known]
        missing = [number for number in before if number not in self._learned]
        if any(number not in self._news for number in missing):
            self._astray = not (self.in_flight or self.waiting or self._running)
            return None
        self._learn_all_of(missing)
        return recorded[talk]

    def _learn_all_of(self, numbers: Iterable[int]) -> tuple[int, ...]:
        learned = tuple(numbers)
        for number in learned:
            self.learn(self._news.pop(number))
        self._learned.update(learned)
        return learned

    def _count_failures(self, candidates: Sequence[Candidate]) -> None:
        """Wait longer after each engine failure in a row, and give up after `patience` of them."""
        broken = [v for candidate in candidates for v in candidate.violations if v.resource == "engine"]
        if not broken:
            self.failures = 0
            return
        self.failures += 1
        wait_s = min(_MAX_BACKOFF_S, self.backoff_s * 2 ** (self.failures - 1))
        self.not_before_s = time.monotonic() + wait_s
        if self.failures >= self.patience and not self.gave_up:
            why = broken[0].message
            self.gave_up = f"engine {self.engine.name!r} failed {self.failures} times in a row; last: {why}"

    def __getstate__(self) -> dict[str, Any]:
        """Conversations do not survive pickling; those that have not proposed yet are held again."""
        begun = self.talks - len(self._running)
        return {**self.__dict__, "_running": deque(), "not_before_s": 0.0, "talks": begun}
