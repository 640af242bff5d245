"""What proposers that ask a language model have in common: conversations in threads, ahead of need, within budget."""

import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, NamedTuple

from automcu_ray.core.feasibility import Estimate
from automcu_ray.networks.candidate import START_FROM, Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from automcu_ray.sizing.size_model import Estimator
from searchers.dialogue.dialogue import Dialogue, Sampling, Script
from searchers.dialogue.free_proposals import SIZED, FreeProposals, sizes_of
from searchers.dialogue.notations import Notation
from searchers.dialogue.pacing import Pacing, note_if_stale
from searchers.dialogue.rows import Known
from searchers.engines.base import Begun, Engine, Reply, Request
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
        pacing: when the engine is asked, and what is proposed without it.
        parallel: conversations at a time; one with an engine that answers at once.
        patience: engine failures in a row after which nothing more is proposed.
        backoff_s: the first wait after an engine failure; it doubles.
    """

    table_name: ClassVar[str]  # in searchers.PROPOSERS
    forgets: bool = False  # prompts say nothing of records: an ablation

    def __init__(
        self,
        task: Task,
        *,
        seed: int,
        engine: Engine | None,
        sampling: Sampling,
        batch: int,
        pacing: Pacing,
        parallel: int,
        patience: int,
        backoff_s: float,
    ) -> None:
        super().__init__(task, seed=seed)
        self.engine: Engine = engine or OfflineEngine()
        self.sampling, self.pacing = sampling, pacing
        self.schedule = Schedule(self.engine.recorded)
        self.batch = max(1, batch)
        self.parallel = 1 if self.engine.instant else max(1, parallel)
        self.patience, self.backoff_s = max(1, patience), backoff_s
        self.failures = 0  # of the engine, in a row
        self.not_before_s = 0.0
        self.gave_up = ""  # why no conversation is begun any more
        self.begun = 0  # conversations
        self.records: list[Record] = []  # learned
        self.stale: list[int] = []  # the latest conversations that were learned, as far as they brought nothing new
        self.fruitless: list[int] = []  # the same of all conversations
        self.pending: tuple[Candidate, ...] = ()  # under way when the latest conversation began
        self.left: int | None = None
        self.sized: deque[Record] = deque(maxlen=SIZED)
        self.estimator: Estimator | None = None
        filler = pacing.filler(task, seed)
        name = pacing.fill.name if pacing.fill is not None else ""
        self.free: FreeProposals | None = FreeProposals(task, mend=pacing.mend, filler=filler, name=name)
        self.again = 0  # conversations in a row that knew nothing new
        self._awaits = False  # outcomes, before the next conversation
        self._spared = False  # the next conversation: too little is left for it
        self._news: dict[int, Record] = {}  # not learned yet
        self._running: deque[_Running] = deque()

    def learn(self, record: Record) -> None:
        """Learn one record before the next conversation begins; by default, keep it unless the engine had failed."""
        if record.engine_failed:
            return
        self.records.append(record)
        note_if_stale(self.stale, record)
        if record.feasibility is not None and record.feasibility.ram_bytes:
            self.sized.append(record)

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
        if (recorded := self.schedule.free(state.number)) is not None:
            return [recorded]
        found = self._without_asking(state, mending=True)
        if found is None:
            self._begin(state)
            found = self.collect() or self._without_asking(state)
        if found is None and not self.ordered and (reason := self.gave_up or state.overspent):
            raise NoMoreProposals(reason)
        return found

    def known(self, notation: Notation) -> Known:
        """Return what the next conversation may be told: as things stand now, though it reads that in a thread."""
        task, sizes, estimator = self.task, sizes_of(self.sized, self.task), self.estimator

        def expect(candidate: Candidate) -> Estimate | None:
            if candidate.structure is None or task.on_table:  # nobody can tell
                return None
            return sizes.estimate(task.graph(candidate.structure), estimator)

        return Known(task, notation, tuple(self.records), self.pending, self.left, expect)

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
        note_if_stale(self.fruitless, record)
        if self.free is not None:
            self.free.observe(record)

    def resume(self, proposed: Collection[Candidate], pending: Collection[Candidate]) -> None:
        """Go on with the conversation after the last one that has proposed."""
        self.begun = max((candidate.talk for candidate in proposed), default=0)
        if self.free is not None:
            self.free.resume(proposed, pending)

    def preview(self, size: int = 0) -> list[Request]:
        """Return the requests of the conversation that would be held now; the rules of `offline` answer them."""
        self.engine = collector = _RequestCollector()
        self._learn_all_of(self._news)
        done = {record.candidate.number for record in self.records}
        self.pending = tuple(candidate for candidate in self.pending if candidate.number not in done)
        self._dialogue(self.begun + 1, size or self._size).run()
        return [request for request in collector.requests if request.role != "repair"]

    def close(self) -> None:
        self.engine.close()

    @property
    def _size(self) -> int:
        return self.batch if self.begun else max(self.batch, self.pacing.seeds)

    def wanted(self, state: SearchState) -> int:
        """Return how many candidates the next conversation should propose; 0: it should wait."""
        size = self._size if state.room is None else max(0, min(self._size, state.room - self.coming))
        if self.schedule.holds(self.begun + 1):  # it was begun before anything that speaks against it now
            return size
        if self.gave_up or state.closed or state.overspent:
            return 0
        if len(self.fruitless) >= self.pacing.stall and not self.engine.free:
            self.gave_up = f"the engine proposed nothing new in {len(self.fruitless)} answers in a row"
            return 0
        mended, to_mend = (self.free.mended, self.free.refused) if self.free is not None else ((), ())
        news = sum(not record.engine_failed and number not in mended for number, record in self._news.items())
        more = bool(state.in_flight or state.active or self._running or to_mend)
        waits = bool(self.begun) and more and news < self.pacing.ask_after and not self.engine.free
        # What the user begins with is the reference of the first question: it comes with its result.
        self._awaits = waits or any(candidate.proposer == START_FROM for candidate in state.active)
        # An answer with fewer than half of what one can hold costs as much as a full one.
        self._spared = 0 < 2 * size < self.batch and bool(self.begun and self.free and self.free.filler)
        return 0 if self._awaits or self._spared else size

    def _without_asking(self, state: SearchState, *, mending: bool = False) -> Sequence[Candidate] | None:
        """Return what is proposed in place of the engine: something mended, or a free proposer's for an idle slot."""
        room = state.room is None or state.room > self.coming
        if self.free is None or self.engine.only_recorded or state.closed or not room:
            return None
        stuck = bool(self.gave_up) and self.pacing.on_stall == "fill"
        if mending:
            found = self.free.next_mended(state)
        else:
            idle = stuck or (state.stock == 0 and (self._running or self._awaits or self._spared))
            found = self.free.next_filling(state) if idle else None
        if found is None:
            return None
        self.engine.begin(-state.number, Begun(free=found))
        return [found]

    def _begin(self, state: SearchState) -> None:
        """Begin conversations, as many as may run at a time, but never more than the budget can still use."""
        self._awaits, self._spared, self.estimator = False, False, state.prefilter.estimator
        while len(self._running) < self.parallel and time.monotonic() >= self.not_before_s:
            number = self.begun + 1
            if self.engine.only_recorded and not self.schedule.holds(number):
                self.gave_up = self.gave_up or "the recording is at its end"
            if not (size := self.wanted(state)):
                return
            active = {candidate.number: candidate for candidate in state.active}
            self.again = self.again + 1 if self.begun and (self.forgets or not self._news) else 0
            fresh = Begun(size=size, pending=tuple(sorted(active)), left=state.room, again=self.again)
            waits = bool(state.in_flight or state.active or self._running)
            begun = self.schedule.begin(number, self._news, fresh, active=active, waits=waits)
            if begun is None:
                return
            self._learn_all_of(begun.known)
            known = active | {number: record.candidate for number, record in self._news.items()}
            self.pending, self.left = tuple(known[number] for number in begun.pending), begun.left
            self.begun = number
            self.engine.begin(number, begun)
            dialogue = self._dialogue(number, begun.size, begun.again)
            future: Future[list[Candidate]] = Future()
            if self.engine.instant:
                future.set_result(dialogue.run())
            else:  # a daemon: the process may end while it waits
                threading.Thread(target=_settle, args=(future, dialogue), name="dialogue", daemon=True).start()
            self._running.append(_Running(future, begun.size))

    def _dialogue(self, number: int, size: int, again: int = 0) -> Dialogue:
        heat = len(self.stale) + (0 if self.sampling.temperature else again)
        return Dialogue(self.engine, self.seed, number, self.sampling, self.signature, self.script(size), heat)

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
