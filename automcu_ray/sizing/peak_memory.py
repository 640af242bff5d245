"""The memory that a network's operators need in their best order, counting outputs that are written over their inputs.

One account for specs (`footprint`) and for generated C (`backends/c_qemu/schedule.py`), in elements or in bytes, as the
caller counts. An operator may write over an input that nobody reads again, if it never overwrites what it has yet to
read (Blacker et al. 2020, "diagonal memory optimisation", arXiv:2010.01668).
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

MAX_STATES = 5_000  # sets of finished operators looked at in one stretch of a graph; a search space's blocks have ten


class Lag(NamedTuple):
    """How far an output must be off an input to be written over it.

    Either it starts at least `before` before the input does, and its values are computed in ascending order; or it
    ends at least `after` after the input does, and they are computed in descending order.
    """

    before: int
    after: int


_NEVER = 1 << 60
APART = Lag(_NEVER, _NEVER)
ANYWHERE = Lag(-_NEVER, -_NEVER)
IN_PLACE = Lag(0, _NEVER)


class Step(NamedTuple):
    """One operator: which steps' outputs it reads (each once), the size of its own output, and a lag for each read.

    A size of 0 means that the output does not lie among the others: the network's own output has a buffer of its own.
    `scratch` is what the operator needs beside its tensors while it runs.
    """

    reads: tuple[int, ...]
    size: int
    lags: tuple[Lag, ...]
    scratch: int = 0


def shared_size(size: int, dying: Iterable[tuple[int, Lag]]) -> int:
    """Return how much of an output can at most lie over inputs, given as (size, lag), that are read for the last time.

    A bound: where several inputs would have to lie side by side, a plan may not achieve it.
    """
    shared = 0
    for read, (before, after) in dying:  # spelled out: called once an operator, thousands of networks a second
        lag = before if before < after else after
        part = size - lag if lag > 0 else size
        if part > 0:
            shared += part if part < read else read
    return shared if shared < size else size


def live_sizes(steps: Sequence[Step], order: Sequence[int]) -> list[int]:
    """Return, for each step of `order`, the size of all outputs alive while it runs: no arena can be smaller."""
    last = {read: step for step in order for read in steps[step].reads}
    live, moments = 0, []
    for index in order:
        reads, size, lags, scratch = steps[index]
        dying = [(steps[read].size, lag) for read, lag in zip(reads, lags, strict=True) if last[read] == index]
        live += size
        moments.append(live + scratch - (shared_size(size, dying) if dying and size else 0))
        for dead, _ in dying:
            live -= dead
        if index not in last:
            live -= size  # nobody reads it: needed only while it is written
    return moments


def best_order(steps: Sequence[Step]) -> list[int]:
    """Return an execution order whose largest moment is smallest, for steps given in some topological order.

    Exact, by dynamic programming over the sets of steps that may be finished, one stretch between two articulation
    points at a time: there only one output is alive, so that stretches do not influence each other. A stretch with
    more than `MAX_STATES` such sets (wide networks from elsewhere) keeps the given order.
    """
    if _is_forced(steps, range(len(steps))):
        return list(range(len(steps)))
    order: list[int] = []
    for stretch in _stretches(steps):
        order += stretch if _is_forced(steps, stretch) else _best_stretch(steps, stretch)
    return order


def _is_forced(steps: Sequence[Step], stretch: range) -> bool:
    return all([index - 1 in steps[index].reads for index in stretch[1:]])  # each needs the one before


def _stretches(steps: Sequence[Step]) -> list[range]:
    last = len(steps) - 1
    unread = set(range(last)).difference(*[step.reads for step in steps])  # may run at any later time
    ends, earliest = [last + 1], min([*unread, *steps[last].reads], default=-1)
    for index in range(last - 1, -1, -1):
        if earliest >= index:  # all later steps read this one or later ones, and so need it
            ends.append(index + 1)
        earliest = min(earliest, min(steps[index].reads, default=-1))
    starts = [0, *reversed(ends)]
    return [range(start, end) for start, end in pairwise(starts) if start < end]


def _best_stretch(steps: Sequence[Step], stretch: range) -> list[int]:
    readers: dict[int, set[int]] = {}
    for index in stretch:
        for read in steps[index].reads:
            readers.setdefault(read, set()).add(index)
    # By the set of finished steps: the smallest peak, what is alive, and how it came about.
    states: dict[frozenset[int], tuple[int, int, list[int]]] = {frozenset(): (0, 0, [])}
    seen = 0
    for _ in stretch:
        following: dict[frozenset[int], tuple[int, int, list[int]]] = {}
        for done, (peak, live, path) in states.items():
            for index in stretch:
                if index in done or any(read in stretch and read not in done for read in steps[index].reads):
                    continue
                now = done | {index}
                moment, after = _run(steps, index, now, live, readers)
                if now not in following or max(peak, moment) < following[now][0]:
                    following[now] = (max(peak, moment), after, [*path, index])
        seen += len(following)
        if seen > MAX_STATES:
            return list(stretch)
        states = following
    return next(iter(states.values()))[2]


def _run(
    steps: Sequence[Step], index: int, done: frozenset[int], live: int, readers: dict[int, set[int]]
) -> tuple[int, int]:
    """Return what is alive while a step runs and after it; what came before the stretch is left out until it dies."""
    reads, size, lags, scratch = steps[index]
    dying = [(steps[read].size, lag) for read, lag in zip(reads, lags, strict=True) if readers[read] <= done]
    moment = live + size + scratch - shared_size(size, dying)
    kept = size if index in readers else 0
    return moment, live + kept - sum(dead for dead, _ in dying)


class Axis(NamedTuple):
    """Rows or columns of a window: sizes of input and output, stride, padding before, first to last row of a window."""

    read: int
    written: int
    stride: int
    pad: int
    reach: int

    def mirrored(self) -> "Axis":
        """Return the same axis seen from its other end."""
        pad = (self.written - 1) * self.stride + self.reach - (self.read - 1) - self.pad
        return self._replace(pad=pad)


def window_lag(groups: int, planes: tuple[int, int], rows: Axis, columns: Axis) -> Lag:
    """Return the lag, in elements, of a convolution or pooling that computes channel by channel, row by row (NCHW).

    Output t, in the order of writing, reads nothing before f(t), and output t - 1 may be written up to there: the lag
    is the largest t - f(t). Channels, rows and columns contribute one summand each, which is largest at an end or
    where the window leaves the padding. Backwards it is the same with rows and columns seen from the other end.

    Args:
        groups: of channels; all of them for a depthwise convolution or a pooling.
        planes: input and output channels of one group.
        rows: the outer loop.
        columns: the inner loop.
    """
    plane = rows.written * columns.written
    each_group = planes[1] * plane - planes[0] * rows.read * columns.read  # adds so much to the lag
    channels = (planes[1] - 1) * plane + max(0, (groups - 1) * each_group)
    before, after = (
        channels + _axis_lag(down, columns.read, columns.written) + _axis_lag(right, 1, 1)
        for down, right in ((rows, columns), (rows.mirrored(), columns.mirrored()))
    )
    return Lag(before, after)


def _axis_lag(axis: Axis, read: int, written: int) -> int:
    """Return the largest t - f(t) of one axis whose neighbours are so many elements apart."""
    count, stride, pad = axis.written, axis.stride, axis.pad
    leaves = pad // stride if pad > 0 else 0  # the last window that starts in the padding
    lags = [0 if pad >= 0 else pad * read]  # of the first window
    for at in {leaves, leaves + 1, count - 1}:
        if at < count:
            start = at * stride - pad
            lags.append(at * written - start * read if start > 0 else at * written)
    return max(lags)
