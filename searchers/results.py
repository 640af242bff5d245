"""What a candidate's verdict, and what its trial reported to Ray Tune, make of it."""

from typing import Any

from automcu_ray.feasibility import FeasibilityReport, Rung
from automcu_ray.record import Status, TrainingSummary

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


def training_summary(result: dict[str, Any] | None) -> TrainingSummary | None:
    """Return the summary in Tune's last result; a foreign trainable may report the metric alone. None without one."""
    if not result or METRIC not in result:
        return None
    fields = {key.removeprefix(_PREFIX): value for key, value in result.items() if key.startswith(_PREFIX)}
    return TrainingSummary.model_validate(fields or {METRIC: result[METRIC]})
