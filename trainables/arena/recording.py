"""What an attempt's measured figures come to: J by the task, and its ceilings."""

from collections.abc import Sequence

from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.arena import ArenaTask
from automcu_ray.records.attempt import Figures
from automcu_ray.runtime import plugins
from backends.boards.pool import BoardEntry
from backends.instruments import INSTRUMENTS
from backends.instruments.trace import over_ceiling


def objective(task: ArenaTask, figures: Figures) -> float | None:
    """Return J by the task; None where the figure that it needs was not measured."""
    if task.objective == "error":
        return None if figures.accuracy is None else 1 - figures.accuracy
    if task.objective == "heat":  # equation 10
        if figures.peak_rise_kelvin is None or figures.seconds is None:
            return None
        return task.rise_weight * figures.peak_rise_kelvin + task.seconds_weight * figures.seconds
    found = getattr(figures, task.objective)
    return None if found is None else float(found)


def over_ceilings(task: ArenaTask, figures: Figures) -> str:
    """Return which ceilings of the task are passed, hard limits for safety; "" for none."""
    asked = (
        (figures.peak_amperes, task.feasibility.max_peak_amperes, "the peak current in ampere"),
        (figures.peak_celsius, task.feasibility.max_celsius, "the peak temperature in Celsius"),
        (figures.peak_rise_kelvin, task.feasibility.max_rise_kelvin, "the peak rise in kelvin"),
    )
    told = [
        over_ceiling(float("nan") if found is None else found, ceiling, what)
        for found, ceiling, what in asked
        if ceiling is not None
    ]
    return "; ".join(filter(None, told))


def check_instruments(task: ArenaTask, boards: Sequence[BoardEntry]) -> None:
    """Raise unless every board has the instrument that a task needs beside it, with options that it knows.

    Raises:
        ConfigError: which board lacks what.
    """
    for board in boards:
        made = None
        if board.instrument is not None:
            made = plugins.load("instrument", INSTRUMENTS, board.instrument)
            plugins.check_options("instrument", board.instrument, made, board.instrument_options)
        if lacking := sorted(task.quantities - ({made.quantity} if made else set())):
            fitting = [
                name for name in INSTRUMENTS if plugins.load("instrument", INSTRUMENTS, name).quantity in lacking
            ]
            raise ConfigError(
                f"task {task.name!r} needs the {' and the '.join(lacking)} measured, and board {board.id!r} of the map "
                f"has no instrument for it: give it `instrument: {fitting[0]}` and its instrument_options (known: "
                f"{', '.join(fitting)})."
            )
