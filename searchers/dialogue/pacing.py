"""When an engine is asked, and what is proposed without it."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.models import FrozenModel
from automcu_ray.core.training_recipe import Positive
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from automcu_ray.runtime.config import Plugin
from searchers.proposer import Proposer

OnStall = Literal["end", "fill"]

Share = Annotated[float, Field(ge=0, le=1)]


class Pacing(FrozenModel):
    """When an engine is asked, and what is proposed without it.

    Attributes:
        seeds: candidates that the first conversation is asked for, before anything is known.
        ask_after: outcomes that a later conversation has to know which no one before it did; 0: it never waits. It does
            not wait where no outcome can come.
        stall: conversations in a row without anything new after which the engine counts as stuck.
        on_stall: what follows then: the end of the search, or `fill` alone.
        fill: a searcher that proposes while a slot would be idle because the engine thinks, or outcomes are awaited.
        mend: up to which excess, as a share of the limit, a refused network is made to fit without asking; repeats are
            morphed then, too. 0: neither.
    """

    seeds: Positive = 1
    ask_after: NonNegativeInt = 1
    stall: Positive = 8
    on_stall: OnStall = "end"
    fill: Plugin | None = None
    mend: Share = 1.0

    def filler(self, task: Task, seed: int) -> Proposer | None:
        """Return the proposer of `fill`.

        Raises:
            ConfigError: no such searcher or option, or it asks an engine itself.
        """
        if self.fill is None:
            return None
        from searchers import pick_proposer  # the table of all of them

        found = pick_proposer(self.fill, task, seed=seed)
        if found.engine is not None:
            raise ConfigError(f"searcher.fill: {self.fill.name!r} asks an engine: name one that does not, as capacity.")
        return found


def note_if_stale(talks: list[int], record: Record) -> None:
    """Keep the conversations in a row that brought nothing new; a candidate that is new ends the row."""
    talk = record.candidate.talk
    if not talk or record.engine_failed:
        return
    if record.status not in ("duplicate", "invalid"):
        talks.clear()
    elif talk not in talks:
        talks.append(talk)
