"""One conversation with an engine: what it asks, what it makes of the answers, what it has cost."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import Field, NonNegativeFloat

from automcu_ray.core.cost import Cost
from automcu_ray.core.feasibility import Rung, Violation
from automcu_ray.core.models import FrozenModel
from automcu_ray.core.training_recipe import Positive
from automcu_ray.networks.candidate import Candidate
from searchers.dialogue import prompts
from searchers.dialogue.reply_parsing import REPLY_CHARS, UnusableReply
from searchers.engines.base import Engine, Prompt, Reply, Request

HEAT_STEP, HEAT_MOST = 0.2, 1.0  # of temperature: what each repeat adds, and all of them together
TURNS = 4  # requests of one conversation at most: two roles, and one repair of each
_SEEDS_PER_RUN = 1_000_000  # paper 002 adds the call to the seed: runs with neighbouring seeds would share some
TopP = Annotated[float, Field(gt=0, le=1)]
_T = TypeVar("_T")


class Sampling(FrozenModel):
    """How an engine draws its text."""

    temperature: NonNegativeFloat = 0.7
    top_p: TopP = 0.9
    max_tokens: Positive = 2048


class Dialogue:
    """A conversation that ends with candidates; runs in a thread of its own and never raises.

    Args:
        engine: what answers.
        run_seed: of the run; with the conversation's number, it gives the seed of each request.
        number: of the conversation in its run, from 1.
        sampling: of every request.
        proposer: who gets the credit for the candidates.
        script: asks the questions and returns what the engine proposes, at least one candidate; raises UnusableReply
            where nothing can be read.
        heat: by how many steps the temperature is raised: so many times an equal request, or one like it, was in vain.
    """

    def __init__(
        self,
        engine: Engine,
        run_seed: int,
        number: int,
        sampling: Sampling,
        proposer: str,
        script: "Script",
        heat: int = 0,
    ) -> None:
        self.heat = heat
        self.engine, self.run_seed, self.number = engine, run_seed, number
        self.sampling, self.proposer, self.script = sampling, proposer, script
        self.cost = Cost()
        self.last = Reply()
        self.asked = 0
        self.about: dict[str, Any] = {}  # what is true of every candidate, also of one that could not be read

    def run(self) -> list[Candidate]:
        """Return the candidates, each with its share of the cost; without a network where there is none."""
        try:
            found = self.script(self)
        except UnusableReply as error:
            found = [Candidate(violations=(error.violation,), reply=self.last.text[:REPLY_CHARS])]
        except Exception as error:  # a defect here must cost one proposal, not Tune's loop
            message = f"conversation broke: {type(error).__name__}: {str(error)[:200]}"
            found = [Candidate(violations=(Violation(rung=Rung.SCHEMA, resource="engine", message=message),))]
        about = {**self.about, "proposer": self.proposer, "talk": self.number}
        shares = self.cost.split(len(found))
        return [one.replace(**about, cost=cost) for one, cost in zip(found, shares, strict=True)]

    def ask(
        self,
        role: str,
        turn: int,
        prompt: Prompt,
        schema: dict[str, Any] | None,
        read: Callable[[Reply], _T],
    ) -> _T:
        """Return what `read` makes of the reply, or of a second one, told what was wrong with the first.

        Where the engine failed there is none: it has tried again by itself, as often as it should.
        """
        reply = self.complete(role, turn, prompt, schema)
        try:
            return read(reply)
        except UnusableReply as error:
            if reply.finish_reason == "error":
                raise
            prompt = prompts.repair(prompt, reply.text, str(error))
        return read(self.complete("repair", turn + TURNS // 2, prompt, schema))

    def complete(self, role: str, turn: int, prompt: Prompt, schema: dict[str, Any] | None) -> Reply:
        """Return the engine's reply, whatever became of it, and count what it cost."""
        self.asked += 1
        warmer = self.sampling.temperature + min(HEAT_MOST, HEAT_STEP * self.heat)
        request = Request(
            role=role,
            messages=prompt.messages,
            subject=prompt.subject,
            json_schema=schema,
            seed=self.run_seed * _SEEDS_PER_RUN + TURNS * self.number + turn,
            talk=self.number,
            **self.sampling.replace(temperature=round(warmer, 3)).model_dump(),
        )
        try:
            self.last = self.engine.complete([request])[0]
        except Exception as error:  # engines should not raise; a new one might
            self.last = Reply.failed(error)
        reply = self.last
        self.cost += reply.cost
        return reply


Script = Callable[[Dialogue], list[Candidate]]
