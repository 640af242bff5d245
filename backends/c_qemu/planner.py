"""Where each buffer lies in one static arena: buffers that are never live together may share bytes.

So may a buffer and one that is read for the last time while it is written, if the kernel allows it.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from automcu_ray.sizing.peak_memory import Lag, shared_size

# Of 2,000 random specs these leave two above the bound; two orders with a reason, alone, left 60.
_ATTEMPTS = 6  # for each order
_PLACED = 10_000  # buffers placed in orders by chance


@dataclass(frozen=True)
class Buffer:
    """One intermediate tensor: written in step `first`, read last in step `last` (both inclusive).

    `over` names buffers that are read for the last time in `first`, with the lags at which this one may be written
    over them. `is_scratch`: no tensor, but what an operator needs while it runs.
    """

    name: str
    size_bytes: int
    first: int
    last: int
    over: tuple[tuple[str, Lag], ...] = ()
    is_scratch: bool = False

    def lives_with(self, other: "Buffer") -> bool:
        """Whether some step needs both."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Plan:
    """Offsets in the arena by buffer name, and the arena's size, in bytes; aligned as all sizes and lags are."""

    offsets: dict[str, int]
    arena_bytes: int


def plan(buffers: Sequence[Buffer]) -> Plan:
    """Return offsets such that buffers that live together overlap only as they may; the same ones every time.

    Buffers are placed from the last to the first, then by size (Pisarchyk & Lee 2020, arXiv:2001.03288, section 5.2),
    each at the lowest place where it fits; whichever sticks out most goes first in the next attempt. Then orders are by
    chance. Not always the optimum: the attempts end when the arena is as small as `lower_bound_bytes`, or are used up.
    """
    least = lower_bound_bytes(buffers)
    best: Plan | None = None
    for made in _attempts(buffers):
        if best is None or made.arena_bytes < best.arena_bytes:
            best = made
        if best.arena_bytes == least:
            break
    assert best is not None, "there are attempts"
    return best


def _attempts(buffers: Sequence[Buffer]) -> Iterator[Plan]:
    backwards = sorted(buffers, key=lambda b: (-b.first, -b.size_bytes, b.name))
    by_size = sorted(buffers, key=lambda b: (-b.size_bytes, b.first, b.name))
    rng = Random(0)
    shuffled = (rng.sample(by_size, len(buffers)) for _ in range(_PLACED // _ATTEMPTS // max(1, len(buffers))))
    for order in itertools.chain((backwards, by_size), shuffled):
        for _ in range(_ATTEMPTS):
            yield (made := _place(order))
            highest = [b for b in order if made.offsets[b.name] + b.size_bytes == made.arena_bytes]
            order = highest + [b for b in order if b not in highest]


def _place(order: Iterable[Buffer]) -> Plan:
    placed: list[tuple[Buffer, int]] = []
    for buffer in order:
        start = 0
        for low, high in sorted(_forbidden(buffer, other, at) for other, at in placed if buffer.lives_with(other)):
            if low < start < high:
                start = high
        placed.append((buffer, start))
    arena_bytes = max((start + buffer.size_bytes for buffer, start in placed), default=0)
    return Plan({buffer.name: start for buffer, start in placed}, arena_bytes)


def _forbidden(buffer: Buffer, other: Buffer, start: int) -> tuple[int, int]:
    """Return between which offsets (both exclusive) a buffer may not start, given where another one does."""
    low, high = start - buffer.size_bytes, start + other.size_bytes
    longer = other.size_bytes - buffer.size_bytes
    for name, lag in buffer.over:
        if name == other.name:
            return max(low, start - lag.before), min(high, start + longer + lag.after)
    for name, lag in other.over:
        if name == buffer.name:
            return max(low, start + longer - lag.after), min(high, start + lag.before)
    return low, high


def lower_bound_bytes(buffers: Sequence[Buffer]) -> int:
    """Return the bytes that live together at the worst step, less what may lie over each other: no plan is smaller."""
    return _busiest(buffers)[0]


def largest_at_peak(buffers: Sequence[Buffer]) -> Buffer | None:
    """Return the largest buffer of the worst step: what to shrink first; None without buffers."""
    return max(_busiest(buffers)[1], key=lambda buffer: buffer.size_bytes, default=None)


def live_bytes(buffers: Sequence[Buffer], step: int) -> int:
    """Return the bytes that live together at a step, less what may lie over each other."""
    sizes = {buffer.name: buffer.size_bytes for buffer in buffers}
    alive = [buffer for buffer in buffers if buffer.first <= step <= buffer.last]
    new = (buffer for buffer in alive if buffer.first == step)
    shared = sum(shared_size(b.size_bytes, [(sizes[name], lag) for name, lag in b.over]) for b in new)
    return sum(buffer.size_bytes for buffer in alive) - shared


def _busiest(buffers: Sequence[Buffer]) -> tuple[int, list[Buffer]]:
    """Return the worst step's bytes and buffers."""
    worst: tuple[int, list[Buffer]] = (0, [])
    for step in sorted({buffer.first for buffer in buffers}):  # live bytes only rise where a buffer begins
        if (needed := live_bytes(buffers, step)) > worst[0]:
            worst = needed, [buffer for buffer in buffers if buffer.first <= step <= buffer.last]
    return worst
