"""What an instrument beside a board records while its firmware answers, and the figures of paper 001 in it."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from automcu_ray.core.errors import BoardError
from automcu_ray.records.attempt import Figures
from backends.boards.pool import BoardEntry
from backends.instruments.base import InstrumentError, Trace
from backends.instruments.own_process import attached
from backends.instruments.trace import PowerTrace


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
            return figures.replace(
                seconds=self.seconds,
                peak_rise_kelvin=self.trace.peak_rise_kelvin,
                peak_celsius=self.trace.peak_celsius,
            )
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
