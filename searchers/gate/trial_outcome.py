"""What a candidate's verdict, and what its trial reported to Ray Tune, make of it."""

from typing import Any, NamedTuple

from pydantic import ValidationError

from automcu_ray.core.feasibility import FeasibilityReport, Rung
from automcu_ray.networks.spec import explain
from automcu_ray.records.record import Status, TrainingSummary

METRIC = "val_accuracy"
_PREFIX = "training/"  # Tune hands results over flat: the fields of "training" arrive as "training/epochs" and so on


def status_of(report: FeasibilityReport) -> Status:
    """Return what a verdict makes of a candidate: "ok" where nothing speaks against it."""
    if report.feasible:
        return "ok"
    if report.rung in (Rung.SCHEMA, Rung.SHAPES):
        return "invalid"
    return "failed" if any(violation.resource == "tool" for violation in report.violations) else "infeasible"


def reason_of(report: FeasibilityReport) -> str:
    """Return what speaks against a candidate, in one line; empty where nothing does."""
    return "; ".join(violation.message for violation in report.violations)


class Ending(NamedTuple):
    """What became of a trial; `lost_seconds` it trained in vain."""

    status: Status
    reason: str
    report: FeasibilityReport
    training: TrainingSummary | None = None
    lost_seconds: float = 0.0


def ending(result: dict[str, Any] | None, report: FeasibilityReport, *, error: bool) -> Ending:
    """Return what Tune's last result, and the verdict on its candidate, make of a trial.

    A user's own trainable may report the metric alone, or more than a summary has fields for, which is left out. What
    cannot be read as a summary is a failure.
    """
    if result and result.get("failure"):
        lost = result.get("seconds")
        lost_seconds = float(lost) if isinstance(lost, int | float) else 0.0
        return Ending("failed", str(result["failure"])[:300], report, lost_seconds=lost_seconds)
    if error or not result or METRIC not in result:
        why = "training ended with an error, or its worker died: see error.txt in the trial's folder"
        return Ending("failed", why, report)
    told = {name: result[key] for name in TrainingSummary.model_fields if (key := _PREFIX + name) in result}
    try:
        summary = TrainingSummary.model_validate({METRIC: result[METRIC], **told})
    except ValidationError as problem:
        return Ending("failed", f"what the trial reported cannot be read: {explain(problem)}", report)
    return Ending(status_of(report), reason_of(report), report, summary)
