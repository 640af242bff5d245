"""How a run is supervised: how its agents share what they know, and when it may end before its budget."""

from typing import Annotated, Literal

from pydantic import Field

from automcu_ray.core.models import FiniteModel
from automcu_ray.core.training_recipe import Positive

_CALLS_PER_TRAINED = 8


class Supervision(FiniteModel):
    """The supervisor of a run (paper 000, section III-E).

    `agents: shared` is the arm w/o MSIM of its table IV: proposal, evaluation and training are roles of one
    conversation with tools, whose transcript grows; `isolated` agents exchange typed summaries.

    A search ends before its budget where some network is accurate `enough` (validation accuracy after the proxy's
    training, a share of 1), or where the last `patience` trained candidates improved nothing. Neither holds unless set.

    Where agents share a conversation, `tolerance` failed calls in a row are a dead end, and so are `calls` in all
    (8 for each candidate that may be trained unless given): then the run has failed.
    """

    agents: Literal["isolated", "shared"] = "isolated"
    enough: Annotated[float, Field(gt=0, le=1)] | None = None
    patience: Positive | None = None
    tolerance: Positive = 3
    calls: Positive | None = None

    def most_calls(self, trained: int) -> int:
        """Return how many calls a conversation may have, where so many candidates may be trained."""
        return self.calls or _CALLS_PER_TRAINED * trained
