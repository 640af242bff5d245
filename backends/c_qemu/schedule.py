"""In which order a network's operators run in the generated C, and where their outputs lie in the arena."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from automcu_ray.core.errors import ToolchainError
from automcu_ray.sizing.peak_memory import ANYWHERE, APART, Lag, Step, best_order
from backends.c_qemu.overlaps import Copy, Shapes, copies, lags
from backends.c_qemu.planner import Buffer, plan


class Call(NamedTuple):
    """One call in the generated function: an operator (by its number), or one copy of those it consists of.

    `writes` are the tensors that it fills, `reads` those that it reads, with the lags in bytes. `scratch` names the
    memory that it needs while it runs, "" for none.
    """

    op: int
    writes: tuple[str, ...]
    reads: dict[str, Lag]
    copy: Copy | None = None
    scratch: str = ""
    scratch_bytes: int = 0


@dataclass(frozen=True)
class Schedule:
    """Calls in execution order, buffers and their offsets; `descending` are the operators to compute from the end."""

    calls: tuple[Call, ...]
    buffers: tuple[Buffer, ...]
    offsets: dict[str, int]
    arena_bytes: int
    descending: frozenset[int]


def schedule(given: Sequence[Call], sizes: Mapping[str, int]) -> Schedule:
    """Return when the operators run and where the intermediates lie.

    Args:
        given: the operators' calls, in a topological order.
        sizes: of the intermediates by name, in bytes; all other tensors have memory of their own.
    """
    maker = {name: number for number, call in enumerate(given) for name in call.writes}
    steps = []  # several outputs of a call are taken to be needed as long as any of them
    for call in given:
        by_maker = {maker[name]: lag for name, lag in call.reads.items() if name in maker}
        written = sum(sizes.get(name, 0) for name in call.writes)
        steps.append(Step(tuple(by_maker), written, tuple(by_maker.values()), call.scratch_bytes))
    calls = [given[index] for index in best_order(steps)]
    last = {name: at for at, call in enumerate(calls) for name in (*call.writes, *call.reads)}
    buffers = [
        Buffer(
            name,
            sizes[name],
            at,
            last[name],
            tuple((read, lag) for read, lag in call.reads.items() if last[read] == at and read in sizes),
        )
        for at, call in enumerate(calls)
        for name in call.writes
        if name in sizes
    ]
    buffers += [
        Buffer(call.scratch, call.scratch_bytes, at, at, is_scratch=True)
        for at, call in enumerate(calls)
        if call.scratch
    ]
    found = plan(buffers)
    turned = (calls[b.first] for b in buffers if _lies_behind(b, sizes, found.offsets))
    numbers = frozenset(call.op for call in turned if call.copy is None)
    return Schedule(tuple(calls), tuple(buffers), found.offsets, found.arena_bytes, numbers)


def emx_calls(ops: Sequence[Any], shapes: Shapes, value_bytes: int) -> list[Call]:
    """Return the calls of emx-onnx-cgen's operators; `shapes` of every tensor by its name in C."""
    made = {name for op in ops for name in op.output_names}
    return [call for index, op in enumerate(ops) for call in _calls(index, op, made, shapes, value_bytes)]


def _calls(index: int, op: Any, made: set[str], shapes: Shapes, value_bytes: int) -> list[Call]:
    if moves := copies(op, shapes):
        return [
            Call(index, (move.target,), {move.source: ANYWHERE} if move.source in made else {}, move) for move in moves
        ]
    writes = tuple(op.output_names)
    allowed = lags(op, shapes) if len(writes) == 1 else {}
    reads = {
        name: Lag(*(part * value_bytes for part in allowed.get(name, APART)))
        for name in op.call_args()
        if name in made and name not in writes
    }
    return [Call(index, writes, reads)]


def _lies_behind(buffer: Buffer, sizes: Mapping[str, int], offsets: dict[str, int]) -> bool:
    """Return whether a buffer lies over an input so that its values have to be computed from the end."""
    start, end = offsets[buffer.name], offsets[buffer.name] + buffer.size_bytes
    for name, lag in buffer.over:
        low, high = offsets[name], offsets[name] + sizes[name]
        if start < high and low < end and start > low - lag.before:
            if end < high + lag.after:
                raise ToolchainError(f"{buffer.name} must not lie over {name} as it was planned.")
            return True
    return False
