"""A task of the arena as data (paper 001, section 2.1): limits C, objective J, feasibility G, budget T, documents."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from automcu_ray.core.models import FiniteModel, FrozenModel
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
    "joules": "energy in joule of one cycle: an input, its inference, its answer, the idle time before the next",
    "peak_amperes": "the largest sample of the supply's current in ampere while all inputs are answered",
    "heat": "rise_weight * the peak rise above ambient in kelvin + seconds_weight * the seconds that all inputs take",
}


WAKE_BYTES = 16  # before an input that comes after an idle time: a chip that sleeps may lose the first ones
RigName = Literal["qemu", "max78000", "esp32s3", "stm32n6"]


class Rig(FrozenModel):
    """How an artifact becomes firmware on a board: by our own harness for QEMU, or by a vendor's tools.

    Attributes:
        name: qemu, or the vendor's chip.
        board: what the vendor's tools call the board (MSDK's BOARD, the build configuration of ST's n6_loader).
        sdk: folder of the vendor's SDK; None: where MAXIM_PATH, IDF_PATH or STEDGEAI_CORE_DIR points.
        checkout, python: of ai8x-synthesis, as backend ai8x takes them.
    """

    name: RigName = "qemu"
    board: str = Field(default="", pattern=r"^[A-Za-z0-9_-]{0,40}$")
    sdk: str | None = None
    checkout: str | None = None
    python: str = "python3"


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
        max_peak_amperes, max_rise_kelvin, max_celsius: ceilings for safety, of what an instrument measures; None: not
            asked.
        idle_seconds: how long the host waits between two inputs; the firmware may sleep meanwhile.
        clients: logical clients that the firmware sends each answer to, by UDP over its own access point (ESP32-S3).
        sample_hz: rate at which it samples the chip's own temperature, buffers it, and sends that to them as well.
    """

    unchanged: bool = False
    min_accuracy: float | None = Field(default=None, ge=0, le=1)
    random_inputs: int = Field(default=16, ge=0)
    images: Positive | None = 16
    noise: int = Field(default=4, ge=0, le=255)
    run_seconds: float = Field(default=120, gt=0)
    max_peak_amperes: float | None = Field(default=None, gt=0)
    max_rise_kelvin: float | None = Field(default=None, gt=0)
    max_celsius: float | None = Field(default=None, gt=0)
    idle_seconds: float = Field(default=0, ge=0, le=600)
    clients: int = Field(default=0, ge=0, le=1000)
    sample_hz: int = Field(default=0, ge=0, le=1000)

    @model_validator(mode="after")
    def _asks_something(self) -> "Feasibility":
        if not self.unchanged and self.min_accuracy is None:
            raise ValueError("unchanged or min_accuracy must be set, or any firmware would do")
        return self


class ArenaTask(FiniteModel):
    """The tuple (C, J, G, seed artifact, T), and what the agent is told.

    `J` is lower is better, always. The score of a run is the best J of its valid artifacts, infinite without one; ties
    go to the run with fewer attempts, failed ones included. The two weights are those of `heat` (equation 10).
    `artifact` is what an agent submits: C for the harness, or a network and its training, which the harness carries out
    and gives to the vendor's tools (paper 001, task 1).
    """

    name: str
    goal: str
    target: McuTarget
    constraints: Constraints
    objective: Objective
    feasibility: Feasibility
    workload: Workload
    rig: Rig = Rig()
    artifact: Literal["code", "network"] = "code"
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
        warmest = (self.feasibility.max_rise_kelvin, self.feasibility.max_celsius)
        if self.objective == "heat" or any(limit is not None for limit in warmest):
            wanted.add("temperature")
        return wanted

    @model_validator(mode="after")
    def _can_be_asked(self) -> "ArenaTask":
        if self.artifact == "network" and (self.objective != "error" or self.feasibility.unchanged):
            raise ValueError("an artifact that is a network is judged by its error: objective error, not unchanged")
        if self.rig.name == "stm32n6" and self.artifact != "network":
            raise ValueError("rig stm32n6 takes an artifact that is a network")
        if self.rig.name != "esp32s3" and (self.feasibility.clients or self.feasibility.sample_hz):
            raise ValueError("clients and sample_hz are of rig esp32s3, which has a radio")
        return self

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
