"""A candidate and what became of it: `r_j = (id_j, a_j, p_j, m_j)` (paper 000, equation 3)."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from automcu_ray.core.cost import Cost
from automcu_ray.core.feasibility import FeasibilityReport
from automcu_ray.core.learning import MetricName
from automcu_ray.core.models import FrozenModel, Int64
from automcu_ray.core.objective import Aim
from automcu_ray.core.training_recipe import RankedBy
from automcu_ray.networks.candidate import Candidate, Diagnosis

Status = Literal["ok", "infeasible", "invalid", "duplicate", "failed"]


class Quantised(FrozenModel):
    """One way to int8: `ptq` rounds the network as trained, `qat` trains on with rounding before that.

    `val_accuracy_float` is of the same weights in float.
    """

    method: Literal["ptq", "qat"]
    val_accuracy: float
    val_accuracy_float: float


class TrainingSummary(FrozenModel):
    """`P(a;D,T)`: what training said about a candidate.

    `val_accuracy` is of the network as deployed (int8 unless the task says float32), `val_accuracy_float` of the
    float network. Where a scheduler stopped the trial, both are the float network's: it was not deployed. By another
    `metric` than accuracy they are its scores, of which more is better and 1 is perfect (`Learning.score`);
    `metric_value` is the metric in its own unit, where that is another number.
    `train_loss` is the mean loss over all training steps (first over the steps of a report, then over reports). In a
    training of one epoch or less each image was new to the network then (Ru et al. 2021, arXiv:2006.04492).
    `quantised` has the ways to int8 where a finalist went two, the one that ships first.
    `peak_memory_bytes` is the most since the training began: resident in the worker on a CPU, allocated on a GPU.
    None means not measured.
    """

    val_accuracy: float
    val_accuracy_float: float | None = None
    train_loss: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    ranked_by: RankedBy = "accuracy"
    metric: MetricName = "accuracy"
    metric_value: float | None = None
    quantised: tuple[Quantised, ...] = ()
    epochs: Int64 | None = None
    stopped_early: bool | None = None
    seconds: float | None = None
    peak_memory_bytes: Int64 | None = None
    device: str = ""
    seed: Int64 | None = None
    checkpoint: str = ""

    @property
    def score(self) -> float:
        """What the search ranks by, more is better: `val_accuracy`, or by loss `exp(-train_loss)`.

        That is a share of 1, as an accuracy is: where labels are neither smoothed nor mixed, the geometric mean of the
        probability that the network gave the right class.
        """
        return self.val_accuracy if self.ranking_loss is None else math.exp(-self.ranking_loss)

    @property
    def told(self) -> str:
        """The metric and its value, as people read it: "accuracy 0.9123"."""
        return f"{self.metric} {self.value:.4f}"

    @property
    def value(self) -> float:
        """The metric of the network as deployed, in its own unit."""
        return self.val_accuracy if self.metric_value is None else self.metric_value

    def reported(self) -> dict[str, Any]:
        """Return the summary as a trial reports it to Ray Tune, beside the figures that Tune compares by."""
        return {"val_accuracy": self.val_accuracy, "score": self.score, "training": self.model_dump()}

    @property
    def ranking_loss(self) -> float | None:
        """The training loss, where the search ranks by it."""
        return self.train_loss if self.ranked_by == "loss" else None


class Record(FrozenModel):
    """The final outcome of one candidate, good or bad; `aim` where the search is for the cheapest network."""

    candidate: Candidate
    status: Status
    reason: str = ""
    feasibility: FeasibilityReport | None = None
    training: TrainingSummary | None = None
    cost: Cost = Cost()
    finished_at_s: float = 0.0
    aim: Aim | None = None

    @property
    def score(self) -> float:
        """What the search ranks by, more is better: `quality`, or by `aim` (`Aim.score`).

        Searchers compare by it what their papers compare by accuracy, so that each of them knows every objective.
        """
        return self.quality if self.aim is None else self.aim.score(self.accuracy, self.feasibility)

    @property
    def quality(self) -> float:
        """What training says (`TrainingSummary.score`), whatever the network costs; -inf where nothing was trained."""
        return self.training.score if self.training else float("-inf")

    @property
    def accuracy(self) -> float:
        """Validation accuracy of the network as deployed; -inf where nothing was trained."""
        return self.training.val_accuracy if self.training else float("-inf")

    @property
    def scored(self) -> bool:
        """Whether it was trained and its accuracy is a number (a network may have diverged)."""
        return self.status == "ok" and math.isfinite(self.score) and math.isfinite(self.accuracy)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The candidate's diagnosis with its outcome filled in."""
        mine = self.candidate.diagnosis
        return mine and Diagnosis(problem=mine.problem, suggestion=mine.suggestion, outcome=self.outcome())

    @property
    def engine_failed(self) -> bool:
        """Whether there was no candidate because the engine gave nothing: that says nothing about networks."""
        return any(violation.resource == "engine" for violation in self.candidate.violations)

    def outcome(self) -> str:
        """Return the outcome as one line: the accuracy and sizes, or what went wrong."""
        if self.status != "ok" or self.training is None or self.feasibility is None:
            return f"{self.status}: {self.reason}"
        ranking_loss = self.training.ranking_loss
        loss = "" if ranking_loss is None else f", training loss {ranking_loss:.3f}"
        count = self.feasibility.instructions
        return (
            f"{self.training.told}{loss}, RAM {self.feasibility.ram_bytes} bytes, "
            f"Flash {self.feasibility.flash_bytes} bytes" + ("" if count is None else f", {count} instructions")
        )


def best(records: list[Record]) -> Record | None:
    """Return the feasible record with the highest score; the earlier one of equals."""
    trained = [record for record in records if record.scored]
    return max(trained, key=lambda record: record.score, default=None)


def pareto_front(records: Sequence[Record]) -> list[Record]:
    """Return the trained records that no other one equals or beats in quality and costs; the highest quality first.

    Costs are RAM and Flash, and instructions where all records know theirs.
    """
    measured = [(record, report) for record in records if record.scored and (report := record.feasibility) is not None]
    counted = all(report.instructions is not None for _, report in measured)
    sized = [(record, costs) for record, report in measured if (costs := _costs(report, counted)) is not None]
    front: list[tuple[Record, tuple[int, ...]]] = []
    for record, costs in sorted(sized, key=lambda pair: (-pair[0].quality, pair[1])):
        if not any(all(map(int.__le__, other, costs)) for _, other in front):
            front.append((record, costs))
    return [record for record, _ in front]


def _costs(report: FeasibilityReport, counted: bool) -> tuple[int, ...] | None:
    if report.least_ram_bytes is None or report.flash_bytes is None:
        return None
    sizes = (report.least_ram_bytes, report.flash_bytes)
    return (*sizes, report.instructions) if counted and report.instructions is not None else sizes


class StreamResult(FrozenModel):
    """A recording fed to the board, window by window, beside the front end and onnxruntime in Python.

    `front_end_instructions` are those of the samples between two windows, at most, without the network's.
    """

    windows: Int64
    bit_equal_windows: Int64
    seconds_of_samples: float
    seconds_between: float
    front_end_instructions: Int64 | None = None


class BoardResult(FrozenModel):
    """What a board (emulated or real) answered, beside what onnxruntime gives for the same model and images.

    `bit_equal_images` counts images whose every output byte is equal. `agrees` asks for all of them at int8; float32
    sums in another order, so there `largest_difference` of any output must be within rounding. `instructions` is per
    inference; None where a board cannot count. `stream` is there where the task has a front end.
    """

    name: str
    images: Int64
    bit_equal_images: Int64
    largest_difference: float
    agrees: bool
    instructions: Int64 | None = None
    stack_used_bytes: Int64 | None = None
    seconds: float | None = None
    stream: StreamResult | None = None


class EpochFigures(FrozenModel):
    """What an epoch of full training gave: float validation accuracy, mean training loss; None where it diverged.

    Epochs with int8 rounding are counted after those in float, and `rounded`.
    """

    epoch: Int64
    val_accuracy: float
    train_loss: Annotated[float, Field(allow_inf_nan=False)] | None = None
    rounded: bool = False


class Finalist(FrozenModel):
    """A candidate after full training, the toolchain again with trained weights, and the board.

    `second_opinions` are what other backends say about it; they decide nothing, but for the limits of what a board of
    the map measured. `reason` is why it cannot win, `note`
    who taught it, and what went wrong and cost it nothing.
    """

    number: Int64
    hash: str
    training: TrainingSummary | None = None
    feasibility: FeasibilityReport | None = None
    board: BoardResult | None = None
    second_opinions: tuple[FeasibilityReport, ...] = ()
    reason: str = ""
    note: str = ""
    epochs: tuple[EpochFigures, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether it may win: trained, fits as far as a toolchain said, and the board agreed where there was one."""
        return self.training is not None and not self.reason


class Score(FrozenModel):
    """One number that networks can be ranked by, more is better, and the seconds until it was known.

    `proxy` is the probe, or how far it had come; `reading` says what was read there: the validation accuracy of the
    network as `deployed` or in `float`, the `loss` (less the sum of the epochs' mean training losses: Ru et al. 2021,
    arXiv:2006.04492), or a zero-cost score. Seconds are of CPU time; of wall time where a GPU took part.
    """

    proxy: str
    reading: str
    value: float
    seconds: float


class Measured(FrozenModel):
    """What one training said about network `number`: its scores, and what went wrong, if anything.

    `key` is a digest of all that it depends on. `repeat` 0 is the proxy's; full training has seeds of its own.
    """

    key: str
    number: Int64
    probe: str
    repeat: Int64
    scores: tuple[Score, ...] = ()
    failure: str = ""
