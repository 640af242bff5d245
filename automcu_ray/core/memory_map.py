"""Where a network's intermediate results lie in RAM, operator by operator."""

from automcu_ray.core.models import FrozenModel, Int64


class PlacedBuffer(FrozenModel):
    """So many bytes of the arena, from the operator that writes them to the last that reads them, by their numbers.

    `layer` wrote them. `is_scratch`: no result, but what the layer needs while it runs.
    """

    layer: str
    start_bytes: Int64
    size_bytes: Int64
    first: Int64
    last: Int64
    is_scratch: bool = False


class MemoryMap(FrozenModel):
    """The arena during one inference: the layers of the operators, in their order, and all buffers.

    A buffer may lie over one that its operator reads for the last time. Input and output lie outside of the arena.
    """

    arena_bytes: Int64
    steps: tuple[str, ...]
    buffers: tuple[PlacedBuffer, ...]

    def occupied_bytes(self, step: int) -> int:
        """Return the bytes that hold something while an operator runs; what lies over each other counts once."""
        held = ((b.start_bytes, b.start_bytes + b.size_bytes) for b in self.buffers if b.first <= step <= b.last)
        total = reached = 0
        for start, end in sorted(held):
            total += max(0, end - max(start, reached))
            reached = max(reached, end)
        return total

    @property
    def fullest(self) -> int | None:
        """The operator during which most of the arena is in use, the first of equals; None without operators."""
        return max(range(len(self.steps)), key=self.occupied_bytes, default=None)
