"""Where each buffer lies in one static arena: buffers that are never live together may share bytes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ALIGNMENT = 8  # bytes; the largest that a C scalar needs on a Cortex-M


@dataclass(frozen=True)
class Buffer:
    """One intermediate tensor: written in step `first`, read last in step `last` (both inclusive)."""

    name: str
    size_bytes: int
    first: int
    last: int

    def lives_with(self, other: "Buffer") -> bool:
        """Whether some step needs both."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Plan:
    """Offsets in the arena by buffer name, and the arena's size, both multiples of `ALIGNMENT` bytes."""

    offsets: dict[str, int]
    arena_bytes: int


def plan(buffers: Iterable[Buffer]) -> Plan:
    """Return offsets such that no two buffers that live together overlap.

    Greedy by size (Pisarchyk & Lee 2020, arXiv:2001.03288, section 5.2): the largest first, each at the lowest
    gap it fits. Not always the optimum; `lower_bound_bytes` says how far it can be off.
    """
    placed: list[tuple[int, int, Buffer]] = []  # start, end, buffer
    for buffer in sorted(buffers, key=lambda b: (-b.size_bytes, b.first, b.name)):
        size = _aligned(buffer.size_bytes)
        start = 0
        for begin, end, other in sorted(placed, key=lambda place: place[:2]):
            if not buffer.lives_with(other):
                continue
            if begin - start >= size:
                break
            start = max(start, end)
        placed.append((start, start + size, buffer))
    offsets = {buffer.name: start for start, _, buffer in placed}
    return Plan(offsets, max((end for _, end, _ in placed), default=0))


def lower_bound_bytes(buffers: Sequence[Buffer]) -> int:
    """Return the bytes that live together at the worst step: no plan can be smaller."""
    return sum(buffer.size_bytes for buffer in _busiest(buffers))


def largest_at_peak(buffers: Sequence[Buffer]) -> Buffer | None:
    """Return the largest buffer of the worst step: what to shrink first; None without buffers."""
    return max(_busiest(buffers), key=lambda buffer: buffer.size_bytes, default=None)


def _busiest(buffers: Sequence[Buffer]) -> list[Buffer]:
    steps = {buffer.first for buffer in buffers}  # live bytes only rise where a buffer begins
    alive = ([b for b in buffers if b.first <= step <= b.last] for step in sorted(steps))
    return max(alive, key=lambda live: sum(b.size_bytes for b in live), default=[])


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT
