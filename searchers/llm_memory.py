"""Feedback-memory search (paper 002): an improver reads the outcomes, a generator writes the next network."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from automcu_ray.feasibility import Rung, Violation
from automcu_ray.ledger import Cost
from automcu_ray.record import Candidate, Diagnosis, Record
from automcu_ray.task import Task
from searchers import prompting
from searchers.base import BaseSearcher
from searchers.engines.base import Engine, Message, Reply, Request
from searchers.engines.offline import OfflineEngine
from searchers.memory import Memory
from searchers.replies import UnusableReply, read_advice, read_candidate

_CALLS = 4  # improver, generator, and one repair of each
_SEEDS_PER_RUN = 1_000_000  # paper 002 adds the call to the seed: runs with neighbouring seeds would share some
_REPLY_CHARS = 500
_MAX_BACKOFF_S = 60.0
_T = TypeVar("_T")


class LLMMemorySearch(BaseSearcher):
    """Two roles, one engine: what limits the last network, and the next network (paper 002, algorithm 1).

    A conversation runs in a thread, unless the engine answers at once; `propose` returns None until it is
    over. What cannot be read or built becomes a candidate without a spec, hence a record with the reason.

    Args:
        task: what is searched for.
        seed: with the number of a proposal, which the journal keeps, the seed of each of its requests.
        engine: what answers; None is the rule-based `offline`.
        memory: how many diagnostic triples the improver sees (K).
        temperature: of every request.
        top_p: of every request.
        max_tokens: of every reply.
        parallel: conversations at a time.
        patience: engine failures in a row after which the search stops proposing.
        backoff_s: the first wait after an engine failure; it doubles.
    """

    def __init__(
        self,
        task: Task,
        *,
        seed: int = 0,
        engine: Engine | None = None,
        memory: int = 5,
        temperature: float = 0.7,
        top_p: float = 0.9,
        max_tokens: int = 2048,
        parallel: int = 2,
        patience: int = 5,
        backoff_s: float = 1.0,
    ) -> None:
        super().__init__(task, seed=seed)
        self.engine = engine or OfflineEngine()
        self.memory = Memory(size=memory)
        self.sampling = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
        self.parallel = max(1, parallel)
        self.patience, self.backoff_s = max(1, patience), backoff_s
        self.failures = 0  # of the engine, in a row
        self.not_before_s = 0.0
        self._talks: deque[Future[Candidate]] = deque()
        self._threads: ThreadPoolExecutor | None = None

    def propose(self) -> Candidate | None:
        if self.engine.instant:
            return self._talk(self.next_number)()
        if time.monotonic() >= self.not_before_s:
            self._start_talks()
        if not self._talks or not self._talks[0].done():
            return None
        candidate = self._talks.popleft().result()
        self._count_failures(candidate)
        return candidate

    def observe(self, record: Record) -> None:
        self.memory = self.memory.after(record)

    def _start_talks(self) -> None:
        """Keep `parallel` conversations going, but never more than the budget can still use."""
        self._threads = self._threads or ThreadPoolExecutor(self.parallel, thread_name_prefix="llm")
        while len(self._talks) < min(self.parallel, self._wanted()):
            self._talks.append(self._threads.submit(self._talk(self.next_number + len(self._talks))))

    def _wanted(self) -> int:
        wanted = self.parallel
        if self.trained_budget is not None:
            wanted = min(wanted, self.trained_budget - self.trained - self.in_flight)
        if self.proposal_budget is not None:
            wanted = min(wanted, self.proposal_budget - len(self.repository.proposed))
        return wanted

    def _talk(self, number: int) -> Callable[[], Candidate]:
        """Return the conversation for proposal `number`, about what is known now."""
        seed = self.seed * _SEEDS_PER_RUN + _CALLS * number
        conversation = _Conversation(self.engine, self.task, self.memory, seed, self.sampling)
        return conversation.run

    def _count_failures(self, candidate: Candidate) -> None:
        """Wait longer after each engine failure in a row, and give up after `patience` of them."""
        if not any(violation.resource == "engine" for violation in candidate.violations):
            self.failures = 0
            return
        self.failures += 1
        wait_s = min(_MAX_BACKOFF_S, self.backoff_s * 2 ** (self.failures - 1))
        self.not_before_s = time.monotonic() + wait_s
        if self.failures >= self.patience:
            why = candidate.violations[0].message
            self.gave_up = f"engine {self.engine.name!r} failed {self.failures} times in a row; last: {why}"

    def __getstate__(self) -> dict[str, Any]:
        """Conversations do not survive pickling; their proposals, not yet made, are asked for again."""
        return {**self.__dict__, "_talks": deque(), "_threads": None, "not_before_s": 0.0}


class _Conversation:
    """Improver, then generator, each with one repair; adds up what they cost. Runs in a thread of its own."""

    def __init__(self, engine: Engine, task: Task, memory: Memory, seed: int, sampling: dict[str, Any]) -> None:
        self.engine, self.task, self.memory = engine, task, memory
        self.seed, self.sampling = seed, sampling
        self.cost = Cost()
        self.last = Reply()

    def run(self) -> Candidate:
        """Return the next candidate; without a spec where the engine gave none."""
        _, parent = prompting.reference(self.task, self.memory)
        about: dict[str, Any] = {
            "proposer": "llm_memory" if self.engine.is_language_model else self.engine.name,
            "parent": parent.candidate.hash if parent else "",
        }
        try:
            advice = self._improve()
            about["diagnosis"] = advice and Diagnosis(problem=advice.problem, suggestion=advice.suggestion)
            candidate = self._generate(advice)
        except UnusableReply as error:
            candidate = Candidate(violations=(error.violation,), reply=self.last.text[:_REPLY_CHARS])
        except Exception as error:  # a defect here must cost one proposal, not Tune's loop
            message = f"conversation broke: {type(error).__name__}: {str(error)[:200]}"
            violation = Violation(rung=Rung.SCHEMA, resource="engine", message=message)
            candidate = Candidate(violations=(violation,))
        return candidate.model_copy(update={**about, "cost": self.cost})

    def _improve(self) -> prompting.Advice | None:
        """Return what to change; None where nothing has been tried yet."""
        if self.memory.current is None:
            return None
        messages = prompting.improver_messages(self.task, self.memory)
        return self._ask("improver", 0, messages, prompting.advice_schema(), read_advice)

    def _generate(self, advice: prompting.Advice | None) -> Candidate:
        """Return a candidate. The advice is hostile text too: it goes into the prompt and nowhere else."""
        task, memory = self.task, self.memory
        messages = prompting.generator_messages(task, memory, advice) if advice else prompting.first_messages(task)
        schema = prompting.spec_schema()
        return self._ask("generator", 1, messages, schema, lambda reply: read_candidate(reply, task.space))

    def _ask(
        self,
        role: str,
        turn: int,
        messages: tuple[Message, ...],
        schema: dict[str, Any],
        read: Callable[[Reply], _T],
    ) -> _T:
        """Return what `read` makes of the reply, or of a second one, told what was wrong with the first."""
        reply = self._complete(role, turn, messages, schema)
        try:
            return read(reply)
        except UnusableReply as error:
            if reply.finish_reason != "error":
                messages = prompting.repair_messages(messages, reply.text, str(error))
        return read(self._complete("repair", turn + 2, messages, schema))

    def _complete(self, role: str, turn: int, messages: tuple[Message, ...], schema: dict[str, Any]) -> Reply:
        request = Request(role=role, messages=messages, json_schema=schema, seed=self.seed + turn, **self.sampling)
        try:
            self.last = self.engine.complete([request])[0]
        except Exception as error:  # engines should not raise; a new one might
            self.last = Reply(finish_reason="error", error=f"{type(error).__name__}: {str(error)[:200]}")
        reply = self.last
        self.cost += Cost(
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            llm_seconds=reply.seconds,
            usd=reply.usd,
        )
        return reply
