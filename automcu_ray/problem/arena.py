"""A task of the arena as data (paper 001, section 2.1): limits C, objective J, feasibility G, budget T, documents."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from automcu_ray.core.models import FiniteModel
from automcu_ray.core.training_recipe import Positive, Protocol
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.target import Constraints, McuTarget

Setting = Literal["score", "doc", "hil"]
Objective = Literal["instructions", "ram_bytes", "error", "joules", "peak_amperes", "heat"]
Quantity = Literal["current", "temperature"]  # what an instrument beside the board measures
MEANINGS: dict[Objective, str] = {
    "instructions": "instructions of one inference, the largest over all inputs",
    "ram_bytes": "bytes of RAM that the artifact can reach: data, stack, input and output buffers",
    "error": "share of held-out images that are answered wrongly",
    "joules": "energy in joule of one input: its transfer, its inference and its answer, the mean over all inputs",
    "peak_amperes": "the largest sample of the supply's current in ampere while all inputs are answered",
    "heat": "rise_weight * the peak rise above ambient in kelvin + seconds_weight * the seconds that all inputs take",
}


class Workload(FiniteModel):
    """What the firmware has to compute: a network of this spec, trained on a data set by this recipe, at int8."""

    dataset: str = "digits"
    network: ArchitectureSpec
    training: Protocol
    seed: int = 0


class Feasibility(FiniteModel):
    """What an artifact must do to be valid, G: on inputs that are drawn when it runs.

    Attributes:
        unchanged: every output equals the seed network's, bit for bit (onnxruntime, int8), on all inputs.
        min_accuracy: the least share of held-out images that are answered rightly; None: not asked.
        random_inputs: uniform noise, drawn for each attempt.
        images: held-out images, in an order and with noise of each attempt's own; None: all.
        noise: the largest change of a pixel of those images, in 0..255.
        run_seconds: the time that all inputs together may take.
        max_peak_amperes, max_rise_kelvin: ceilings for safety, of what an instrument measures; None: not asked.
    """

    unchanged: bool = False
    min_accuracy: float | None = Field(default=None, ge=0, le=1)
    random_inputs: int = Field(default=16, ge=0)
    images: Positive | None = 16
    noise: int = Field(default=4, ge=0, le=255)
    run_seconds: float = Field(default=120, gt=0)
    max_peak_amperes: float | None = Field(default=None, gt=0)
    max_rise_kelvin: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _asks_something(self) -> "Feasibility":
        if not self.unchanged and self.min_accuracy is None:
            raise ValueError("unchanged or min_accuracy must be set, or any firmware would do")
        return self


class ArenaTask(FiniteModel):
    """The tuple (C, J, G, seed artifact, T), and what the agent is told.

    `J` is lower is better, always. The score of a run is the best J of its valid artifacts, infinite without one; ties
    go to the run with fewer attempts, failed ones included. The two weights are those of `heat` (equation 10).
    """

    name: str
    goal: str
    target: McuTarget
    constraints: Constraints
    objective: Objective
    feasibility: Feasibility
    workload: Workload
    documents: tuple[str, ...] = ()
    attempts: Positive = 10
    tool_calls: Positive = 30
    rise_weight: float = Field(default=1, ge=0)
    seconds_weight: float = Field(default=1, ge=0)

    @property
    def quantities(self) -> set[Quantity]:
        """What has to be measured by an instrument beside the board."""
        wanted: set[Quantity] = set()
        if self.objective in ("joules", "peak_amperes") or self.feasibility.max_peak_amperes is not None:
            wanted.add("current")
        if self.objective == "heat" or self.feasibility.max_rise_kelvin is not None:
            wanted.add("temperature")
        return wanted

    @property
    def limits(self) -> dict[str, int]:
        """The hard limits C in bytes, by name."""
        return {
            "ram_bytes": self.constraints.ram_limit_bytes(self.target),
            "flash_bytes": self.constraints.flash_limit_bytes(self.target),
        }


def task_of(name: str, text: Mapping[str, Any]) -> ArenaTask:
    """Return a task from what its file holds; its name is the file's."""
    return ArenaTask.model_validate({**text, "name": name})
