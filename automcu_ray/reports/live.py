"""A report that is rewritten while its run goes on."""

import time
from collections.abc import Callable

LEAST_S = 2.0
MOST_SHARE = 0.02  # of the time, at most, is spent on writing


class LiveReport:
    """Writes a report anew when there is news, seldom enough not to be felt."""

    def __init__(self, write: Callable[[], None]) -> None:
        self.write = write
        self._next_s = time.monotonic()

    def refresh(self) -> None:
        """Write, unless the last time was just now: then the next news brings it, or the run's end."""
        started_s = time.monotonic()
        if started_s < self._next_s:
            return
        self.write()
        took_s = time.monotonic() - started_s
        self._next_s = started_s + max(LEAST_S, took_s / MOST_SHARE)
