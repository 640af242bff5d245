"""What became of one artifact: which checks ran, which failed, and what was measured (paper 001, appendix F)."""

import math
from collections.abc import Sequence
from typing import Literal, get_args

from pydantic import Field

from automcu_ray.core.cost import Cost
from automcu_ray.core.models import FrozenModel, Int64

CheckName = Literal[  # in order of cost
    "files", "train", "build", "fit", "flash", "run", "behaviour", "ceiling", "judge"
]  # fmt: skip
CHECKS: tuple[CheckName, ...] = get_args(CheckName)


class Check(FrozenModel):
    """One check: whether it passed, and what is to be said about it."""

    name: CheckName
    passed: bool
    detail: str = ""


class Verdict(FrozenModel):
    """What a language model that was asked last, of an artifact that passed all else, says of it."""

    verdict: Literal["honest", "cheating"]
    reason: str = Field(min_length=1, max_length=300)


class Figures(FrozenModel):
    """What was measured; None: not measured, since a check before it failed."""

    ram_bytes: Int64 | None = None
    flash_bytes: Int64 | None = None
    instructions: Int64 | None = None
    accuracy: float | None = None
    runs: Int64 | None = None
    boot_to_last_ticks: Int64 | None = None
    seconds: float | None = None
    joules: float | None = None
    peak_amperes: float | None = None
    peak_rise_kelvin: float | None = None
    peak_celsius: float | None = None


class Observation(FrozenModel):
    """The observation of one attempt. `objective` is J, None unless every check passed.

    `infrastructure` says what broke on our side: the attempt is not judged then, and counts for nothing. `verdict` is
    that of the judge, where one was asked and answered; `judge_cost` is what asking it has cost, answer or not.
    """

    attempt: Int64
    checks: tuple[Check, ...] = ()
    figures: Figures = Figures()
    objective: float | None = None
    sha256: str = ""
    input_seed: Int64 = 0
    serial: tuple[str, ...] = ()
    infrastructure: str = ""
    seconds: float = 0.0
    verdict: Verdict | None = None
    judge_cost: Cost = Cost()

    @property
    def valid(self) -> bool:
        """Whether the artifact is deployable and does what it must."""
        return self.objective is not None


class Attempt(FrozenModel):
    """What an agent did in one attempt before it submitted, or ran out of calls."""

    number: Int64 = Field(ge=1)
    tool_calls: Int64 = 0
    refused: tuple[str, ...] = ()
    unusable_replies: Int64 = 0
    ended: Literal["submitted", "out of calls", "engine failed"] = "submitted"
    notes: str = ""
    cost: Cost = Cost()


def score(observations: Sequence[Observation]) -> tuple[float, int]:
    """Return (best J, attempts): what runs are compared by, lower first; J is infinite without a valid artifact."""
    judged = [one for one in observations if not one.infrastructure]
    return min((one.objective for one in judged if one.objective is not None), default=math.inf), len(judged)
