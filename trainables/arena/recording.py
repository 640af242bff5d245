"""What an instrument beside the board measures while the firmware answers: figures of paper 001, and its ceilings."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from automcu_ray.core.errors import BoardError, ConfigError
from automcu_ray.problem.arena import ArenaTask
from automcu_ray.records.attempt import Figures
from automcu_ray.runtime import plugins
from backends.boards.pool import BoardEntry
from backends.instruments import INSTRUMENTS
from backends.instruments.base import InstrumentError, Trace
from backends.instruments.own_process import attached
from backends.instruments.trace import PowerTrace, over_ceiling


@dataclass
class Recording:
    """A trace, and when the talk with the firmware began and ended by `time.monotonic`."""

    trace: Trace | None = None
    first_s: float = field(default_factory=time.monotonic)
    last_s: float = 0.0

    @property
    def seconds(self) -> float:
        """How long the talk took."""
        return self.last_s - self.first_s

    def figures(self, figures: Figures, inputs: int) -> Figures:
        """Return figures with what was measured from the first input to the last answer.

        Raises:
            InstrumentError: the trace does not reach from the one to the other.
        """
        if self.trace is None:
            return figures
        if not isinstance(self.trace, PowerTrace):
            return figures.replace(seconds=self.seconds, peak_rise_kelvin=self.trace.peak_rise_kelvin)
        try:
            part = self.trace.between_lines(self.first_s, self.last_s)
        except BoardError as error:
            raise InstrumentError(f"the instrument's trace should cover the whole talk: {error}") from error
        return figures.replace(seconds=self.seconds, joules=part.joules / inputs, peak_amperes=part.peak_amperes)


Recorder = Callable[[], AbstractContextManager[Recording]]


@contextmanager
def unmeasured() -> Iterator[Recording]:
    """Yield a recording without an instrument."""
    yield Recording()


def recorder(entry: BoardEntry, locks: Path) -> Recorder:
    """Return what records beside a board of the map; nothing does where its entry names no instrument."""
    if entry.instrument is None:
        return unmeasured
    name, options = entry.instrument, entry.instrument_options

    @contextmanager
    def record() -> Iterator[Recording]:
        with attached(name, options, locks) as instrument:
            instrument.start()
            found = Recording()
            yield found
            found.last_s = time.monotonic()
            found.trace = instrument.stop()

    return record


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
