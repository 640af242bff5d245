"""One conversation with an engine: what it asks, what it makes of the answers, what it has cost."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import Field, NonNegativeFloat

from automcu_ray.feasibility import Rung, Violation
from automcu_ray.frozen import Frozen
from automcu_ray.ledger import Cost
from automcu_ray.protocol import Positive
from automcu_ray.record import Candidate
from searchers import prompting
from searchers.engines.base import Begun, Engine, Message, Reply, Request
from searchers.replies import REPLY_CHARS, UnusableReply

TURNS = 4  # requests of one conversation at most: two roles, and one repair of each
_SEEDS_PER_RUN = 1_000_000  # paper 002 adds the call to the seed: runs with neighbouring seeds would share some
TopP = Annotated[float, Field(gt=0, le=1)]
_T = TypeVar("_T")


class Sampling(Frozen):
    """How an engine draws its text."""

    temperature: NonNegativeFloat = 0.7
    top_p: TopP = 0.9
    max_tokens: Positive = 2048


@dataclass(frozen=True)
class TalkId:
    """Which conversation of which run, counted from 1, and how it began."""

    run_seed: int
    number: int
    begun: Begun

    def seed(self, turn: int) -> int:
        """Return the seed of one request; no other request of this or a neighbouring run has it."""
        return self.run_seed * _SEEDS_PER_RUN + TURNS * self.number + turn


class Talk(ABC):
    """A conversation that ends with candidates; runs in a thread of its own and never raises.

    Args:
        engine: what answers.
        identity: seeds of the requests, and what a cassette finds them by.
        sampling: of every request.
        proposer: who gets the credit for the candidates.
    """

    def __init__(self, engine: Engine, identity: TalkId, sampling: Sampling, proposer: str) -> None:
        self.engine, self.identity, self.sampling, self.proposer = engine, identity, sampling, proposer
        self.cost = Cost()
        self.last = Reply()
        self.asked = 0
        self.about: dict[str, Any] = {}  # what is true of every candidate, also of one that could not be read

    @abstractmethod
    def candidates(self) -> list[Candidate]:
        """Return what the engine proposes, at least one.

        Raises:
            UnusableReply: nothing in it can be read.
        """

    def run(self) -> list[Candidate]:
        """Return the candidates, each with its share of the cost; without a network where there is none."""
        try:
            found = self.candidates()
        except UnusableReply as error:
            found = [Candidate(violations=(error.violation,), reply=self.last.text[:REPLY_CHARS])]
        except Exception as error:  # a defect here must cost one proposal, not Tune's loop
            message = f"conversation broke: {type(error).__name__}: {str(error)[:200]}"
            found = [Candidate(violations=(Violation(rung=Rung.SCHEMA, resource="engine", message=message),))]
        about = {**self.about, "proposer": self.proposer, "talk": self.identity.number}
        shares = self.cost.split(len(found))
        return [one.model_copy(update={**about, "cost": cost}) for one, cost in zip(found, shares, strict=True)]

    def ask(
        self,
        role: str,
        turn: int,
        messages: tuple[Message, ...],
        schema: dict[str, Any] | None,
        read: Callable[[Reply], _T],
    ) -> _T:
        """Return what `read` makes of the reply, or of a second one, told what was wrong with the first.

        Where the engine failed there is none: it has tried again by itself, as often as it should.
        """
        reply = self.complete(role, turn, messages, schema)
        try:
            return read(reply)
        except UnusableReply as error:
            if reply.finish_reason == "error":
                raise
            messages = prompting.repair_messages(messages, reply.text, str(error))
        return read(self.complete("repair", turn + TURNS // 2, messages, schema))

    def complete(self, role: str, turn: int, messages: tuple[Message, ...], schema: dict[str, Any] | None) -> Reply:
        """Return the engine's reply, whatever became of it, and count what it cost."""
        self.asked += 1
        identity = self.identity
        request = Request(
            role=role,
            messages=messages,
            json_schema=schema,
            seed=identity.seed(turn),
            talk=identity.number,
            **self.sampling.model_dump(),
        )
        try:
            self.last = self.engine.complete([request])[0]
        except Exception as error:  # engines should not raise; a new one might
            self.last = Reply.failed(error)
        reply = self.last
        self.cost += Cost(
            prompt_tokens=reply.prompt_tokens,
            cached_tokens=reply.cached_tokens,
            completion_tokens=reply.completion_tokens,
            llm_seconds=reply.seconds,
            usd=reply.usd,
        )
        return reply
