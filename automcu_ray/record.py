"""A candidate and what became of it: `r_j = (id_j, a_j, p_j, m_j)` (paper 000, equation 3)."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from automcu_ray.cell import CellSpec
from automcu_ray.feasibility import FeasibilityReport, Violation
from automcu_ray.frozen import Frozen
from automcu_ray.ledger import Cost
from automcu_ray.protocol import RankedBy
from automcu_ray.spec import ArchitectureSpec

Structure = ArchitectureSpec | CellSpec
Status = Literal["ok", "infeasible", "invalid", "duplicate", "failed"]


class Diagnosis(Frozen):
    """The triple (problem, suggestion, outcome) of paper 002, section 3.4; the outcome comes with the record."""

    problem: str
    suggestion: str
    outcome: str = ""


class Candidate(Frozen):
    """One proposal: a spec, PyTorch code or a NAS-Bench-201 cell with its hash, or the reason why there is none.

    `number` counts the proposals of a run from 1. `parent` is the hash of the candidate it was made from, `talk` the
    conversation with an engine that it came from (0: none). `reply` keeps the first characters of a text that could
    not be read as a candidate.
    """

    number: int = 0
    hash: str = ""
    spec: ArchitectureSpec | None = None
    code: str = ""
    cell: CellSpec | None = None
    talk: int = 0
    proposer: str = ""
    parent: str = ""
    diagnosis: Diagnosis | None = None
    cost: Cost = Cost()
    violations: tuple[Violation, ...] = ()
    reply: str = ""

    @property
    def readable(self) -> bool:
        """Whether there is a network to speak of."""
        return self.structure is not None or bool(self.code)

    @property
    def structure(self) -> Structure | None:
        """The spec or the cell: what can be built without running anyone's code."""
        return self.spec or self.cell

    def trial_config(self) -> dict[str, Any]:
        """Return what a Trainable needs to know: the number, and the spec, the cell or the code."""
        if self.spec is not None:
            return {"number": self.number, "spec": self.spec.compact()}
        if self.cell is not None:
            return {"number": self.number, "cell": self.cell.compact()}
        return {"number": self.number, "code": self.code}


class Quantised(Frozen):
    """One way to int8: `ptq` rounds the network as trained, `qat` trains on with rounding before that.

    `val_accuracy_float` is of the same weights in float.
    """

    method: Literal["ptq", "qat"]
    val_accuracy: float
    val_accuracy_float: float


class TrainingSummary(Frozen):
    """`P(a;D,T)`: what training said about a candidate.

    `val_accuracy` is of the network as deployed (int8 unless the task says float32), `val_accuracy_float` of the
    float network. Where a scheduler stopped the trial, both are the float network's: it was not deployed.
    `train_loss` is the mean over reports of the mean loss of their steps: of an epoch or less that is what the network
    made of images that it had not seen before (Ru et al. 2021, arXiv:2006.04492).
    `quantised` has the ways to int8 where a finalist went two, the one that ships first.
    `peak_memory_bytes` is the most since the training began: resident in the worker on a CPU, allocated on a GPU.
    None means not measured.
    """

    val_accuracy: float
    val_accuracy_float: float | None = None
    train_loss: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    ranked_by: RankedBy = "accuracy"
    quantised: tuple[Quantised, ...] = ()
    epochs: int | None = None
    stopped_early: bool | None = None
    seconds: float | None = None
    peak_memory_bytes: int | None = None
    device: str = ""
    seed: int | None = None
    checkpoint: str = ""

    @property
    def score(self) -> float:
        """What the search ranks by, more is better: `val_accuracy`, or by loss `exp(-train_loss)`.

        That is a share of 1, as an accuracy is: where labels are neither smoothed nor mixed, the geometric mean of the
        probability that the network gave the right class.
        """
        return self.val_accuracy if self.ranking_loss is None else math.exp(-self.ranking_loss)

    def reported(self) -> dict[str, Any]:
        """Return the summary as a trial reports it to Ray Tune, beside the figures that Tune compares by."""
        return {"val_accuracy": self.val_accuracy, "score": self.score, "training": self.model_dump()}

    @property
    def ranking_loss(self) -> float | None:
        """The training loss, where the search ranks by it."""
        return self.train_loss if self.ranked_by == "loss" else None


class Record(Frozen):
    """The final outcome of one candidate, good or bad."""

    candidate: Candidate
    status: Status
    reason: str = ""
    feasibility: FeasibilityReport | None = None
    training: TrainingSummary | None = None
    cost: Cost = Cost()
    finished_at_s: float = 0.0

    @property
    def score(self) -> float:
        """What the search ranks by (`TrainingSummary.score`); -inf where nothing was trained.

        Searchers compare by it what their papers compare by accuracy.
        """
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
        return (
            f"accuracy {self.training.val_accuracy:.4f}{loss}, RAM {self.feasibility.ram_bytes} bytes, "
            f"Flash {self.feasibility.flash_bytes} bytes"
        )


def best(records: list[Record]) -> Record | None:
    """Return the feasible record with the highest score; the earlier one of equals."""
    trained = [record for record in records if record.scored]
    return max(trained, key=lambda record: record.score, default=None)


def pareto_front(records: Sequence[Record]) -> list[Record]:
    """Return the trained records that no other one equals or beats in score, RAM and Flash; the highest score first."""
    measured = [record for record in records if record.scored and _sizes(record) is not None]
    front: list[Record] = []
    for record in sorted(measured, key=lambda one: (-one.score, _sizes(one))):
        if not any(_no_larger(other, record) for other in front):
            front.append(record)
    return front


def _sizes(record: Record) -> tuple[int, int] | None:
    report = record.feasibility
    if report is None or report.ram_bytes is None or report.flash_bytes is None:
        return None
    return report.ram_bytes, report.flash_bytes


def _no_larger(one: Record, other: Record) -> bool:
    ours, theirs = _sizes(one), _sizes(other)
    return ours is not None and theirs is not None and ours[0] <= theirs[0] and ours[1] <= theirs[1]


class BoardResult(Frozen):
    """What a board (emulated or real) answered, beside what onnxruntime gives for the same model and images.

    `bit_equal_images` counts images whose every output byte is equal. `agrees` asks for all of them at int8; float32
    sums in another order, so there `largest_difference` of any output must be within rounding. `instructions` is per
    inference; None where a board cannot count.
    """

    name: str
    images: int
    bit_equal_images: int
    largest_difference: float
    agrees: bool
    instructions: int | None = None
    stack_used_bytes: int | None = None
    seconds: float | None = None


class Finalist(Frozen):
    """A candidate after full training, the toolchain again with trained weights, and the board.

    `second_opinions` are what other backends say about it; they decide nothing. `reason` is why it cannot win, `note`
    who taught it, and what went wrong and cost it nothing.
    """

    number: int
    hash: str
    training: TrainingSummary | None = None
    feasibility: FeasibilityReport | None = None
    board: BoardResult | None = None
    second_opinions: tuple[FeasibilityReport, ...] = ()
    reason: str = ""
    note: str = ""

    @property
    def usable(self) -> bool:
        """Whether it may win: trained, fits as far as a toolchain said, and the board agreed where there was one."""
        return self.training is not None and not self.reason
