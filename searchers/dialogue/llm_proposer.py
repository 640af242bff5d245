"""What proposers that ask a language model have in common: conversations in threads, ahead of need, within budget."""

import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, NamedTuple

from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from searchers.dialogue.dialogue import Dialogue, Sampling, Script
from searchers.engines.base import Engine, Reply, Request
from searchers.engines.offline.engine import OfflineEngine
from searchers.engines.recording.schedule import Schedule
from searchers.proposer import NoMoreProposals, Proposer, SearchState

_MAX_BACKOFF_S = 60.0


class _Running(NamedTuple):
    """A conversation that was begun, and how many candidates it was asked for."""

    future: "Future[list[Candidate]]"
    size: int


class _RequestCollector(OfflineEngine):
    """The rules of `offline`; keeps what they are asked."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        self.requests += requests
        return super().complete(requests)


class LLMProposer(Proposer):
    """Holds conversations with an engine and proposes the candidates that they end with.

    Conversations are numbered from 1, and their candidates are proposed in that order. A conversation knows the records
    that `learn` was given before it began. Where the engine answers from a recording, `Schedule` says which those were,
    so that the same requests are made again.

    Args:
        task: what is searched for.
        seed: with the number of a conversation, the seed of each of its requests.
        engine: what answers; None is the rule-based `offline`.
        sampling: of every request.
        batch: candidates that one conversation is asked for.
        parallel: conversations at a time; one with an engine that answers at once.
        patience: engine failures in a row after which nothing more is proposed.
        backoff_s: the first wait after an engine failure; it doubles.
    """

    table_name: ClassVar[str]  # in searchers.PROPOSERS

    def __init__(
        self,
        task: Task,
        *,
        seed: int,
        engine: Engine | None,
        sampling: Sampling,
        batch: int,
        parallel: int,
        patience: int,
        backoff_s: float,
    ) -> None:
        super().__init__(task, seed=seed)
        self.engine: Engine = engine or OfflineEngine()
        self.sampling = sampling
        self.schedule = Schedule(self.engine.recorded)
        self.batch = max(1, batch)
        self.parallel = 1 if self.engine.instant else max(1, parallel)
        self.patience, self.backoff_s = max(1, patience), backoff_s
        self.failures = 0  # of the engine, in a row
        self.not_before_s = 0.0
        self.gave_up = ""  # why no conversation is begun any more
        self.begun = 0  # conversations
        self.records: list[Record] = []  # learned
        self._news: dict[int, Record] = {}  # not learned yet
        self._running: deque[_Running] = deque()

    def learn(self, record: Record) -> None:
        """Learn one record before the next conversation begins; by default, keep it unless the engine had failed."""
        if not record.engine_failed:
            self.records.append(record)

    @abstractmethod
    def script(self, size: int) -> Script:
        """Return what the next conversation asks, by what has been learned until now; it should propose `size`."""

    @property
    def signature(self) -> str:
        """Who gets the credit: this proposer, unless rules stand in for the language model."""
        return self.table_name if self.engine.is_language_model else self.engine.name

    @property
    def owed(self) -> bool:
        """Whether the engine had answered the next conversation when the run was killed: its proposals were lost."""
        return self.schedule.holds(self.begun + 1) and not self.engine.only_recorded

    @property
    def coming(self) -> int:
        """Candidates that conversations under way were asked for."""
        return sum(running.size for running in self._running)

    @property
    def ordered(self) -> int:
        return self.coming + self.schedule.holds(self.begun + 1)

    def propose(self, state: SearchState) -> Sequence[Candidate] | None:
        self._begin(state)
        found = self.collect()
        if found is None and not self.ordered and (reason := self.gave_up or state.overspent):
            raise NoMoreProposals(reason)
        return found

    def collect(self) -> Sequence[Candidate] | None:
        """Return the candidates of the oldest conversation under way, None while it goes on; begin no other."""
        if not self._running or not self._running[0].future.done():
            return None
        candidates = self._running.popleft().future.result()
        self._count_failures(candidates)
        return candidates

    def prepare(self, state: SearchState) -> None:
        if not self.engine.instant:
            self._begin(state)

    def observe(self, record: Record) -> None:
        self._news[record.candidate.number] = record

    def resume(self, proposed: Collection[Candidate], pending: Collection[Candidate]) -> None:
        """Go on with the conversation after the last one that has proposed."""
        self.begun = max((candidate.talk for candidate in proposed), default=0)

    def preview(self) -> list[Request]:
        """Return the requests of the conversation that would be held now; the rules of `offline` answer them."""
        self.engine = collector = _RequestCollector()
        self._learn_all_of(self._news)
        self._dialogue(self.begun + 1, self.batch).run()
        return [request for request in collector.requests if request.role != "repair"]

    def close(self) -> None:
        self.engine.close()

    def wanted(self, state: SearchState) -> int:
        """Return how many candidates the next conversation should propose; 0: it should wait."""
        stopped = self.gave_up or state.closed or state.overspent
        if stopped and not self.schedule.holds(self.begun + 1):  # a recorded one was begun before that
            return 0
        return self.batch if state.room is None else max(0, min(self.batch, state.room - self.coming))

    def _begin(self, state: SearchState) -> None:
        """Begin conversations, as many as may run at a time, but never more than the budget can still use."""
        while len(self._running) < self.parallel and time.monotonic() >= self.not_before_s:
            number = self.begun + 1
            if self.engine.only_recorded and not self.schedule.holds(number):
                self.gave_up = self.gave_up or "the recording is at its end"
            if not (size := self.wanted(state)):
                return
            waits = bool(state.in_flight or state.active or self._running)
            begun = self.schedule.begin(number, self._news, size, waits=waits)
            if begun is None:
                return
            self._learn_all_of(begun.known)
            self.begun = number
            self.engine.begin(number, begun)
            dialogue = self._dialogue(number, begun.size)
            future: Future[list[Candidate]] = Future()
            if self.engine.instant:
                future.set_result(dialogue.run())
            else:  # a daemon: the process may end while it waits
                threading.Thread(target=_settle, args=(future, dialogue), name="dialogue", daemon=True).start()
            self._running.append(_Running(future, begun.size))

    def _dialogue(self, number: int, size: int) -> Dialogue:
        return Dialogue(self.engine, self.seed, number, self.sampling, self.signature, self.script(size))

    def _learn_all_of(self, numbers: Iterable[int]) -> None:
        for number in tuple(numbers):
            self.learn(self._news.pop(number))

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
        begun = self.begun - len(self._running)
        return {**self.__dict__, "_running": deque(), "not_before_s": 0.0, "begun": begun}


def _settle(future: "Future[list[Candidate]]", dialogue: Dialogue) -> None:
    future.set_result(dialogue.run())
