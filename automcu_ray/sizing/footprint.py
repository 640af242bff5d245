"""What a graph needs at least, worked out without building it: the analytic rung."""

from dataclasses import dataclass, replace
from functools import lru_cache

from automcu_ray.core.feasibility import Rung, Violation, over_limit
from automcu_ray.networks.graph import NETWORK_INPUT, Graph, Op, Shape
from automcu_ray.problem.task import Task
from automcu_ray.sizing.peak_memory import (
    ANYWHERE,
    APART,
    IN_PLACE,
    Axis,
    Lag,
    Step,
    best_order,
    live_sizes,
    window_lag,
)
from automcu_ray.sizing.scratch import scratch_bytes

BYTES = {"int8": 1, "float32": 4}
BIAS_BYTES = 4  # int32 or float32
_BY_ROWS = ("conv", "max_pool", "avg_pool", "add")
_FUSIBLE = ("max_pool", "avg_pool", "global_pool", "add", "relu", "norm")


@dataclass(frozen=True)
class Footprint:
    """Sizes of a network, with two lower bounds.

    The bound on Flash is valid for every backend that keeps all weights at full width. The one on RAM is valid for
    c_qemu, and for whoever runs the same operators one after the other with input and output in buffers of their own.
    Toolchains that fuse more operators, or put input and output among the activations, may need less: `min_ram_bytes`
    is for those.

    At int8, RAM includes what c_qemu's convolutions need beside their tensors, at least (`scratch`).
    Left out of the bounds: code, stack, start-up, scales and zero points. So a network they refuse is refused by
    the linker too, and one they accept may still not link.
    """

    parameters: int
    macs: int
    flash_lower_bound_bytes: int
    ram_lower_bound_bytes: int
    largest_weights: str
    widest_moment: str


def footprint(graph: Graph, precision: str) -> Footprint:
    """Return the footprint of a graph at int8 or float32.

    RAM is the largest sum of tensors alive at one operator, and its scratch, in the best order of operators and with
    outputs written over inputs where c_qemu's kernels allow it (`peak_memory`), plus the network's input and output.
    """
    size = BYTES[precision]
    made = steps(graph, precision)
    order = best_order(made)
    live = live_sizes(made, order)
    peak = max(live)
    weights = [op.weights for op in graph.ops]
    biases = sum(op.biases for op in graph.ops)
    heaviest = max(weights)
    return Footprint(
        parameters=sum(weights) + biases,
        macs=sum(count * op.shape[1] * op.shape[2] for count, op in zip(weights, graph.ops, strict=True) if count),
        flash_lower_bound_bytes=sum(weights) * size + biases * BIAS_BYTES,
        ram_lower_bound_bytes=(peak + _elements(graph.input_shape) + _elements(graph.ops[-1].shape)) * size,
        largest_weights=graph.ops[weights.index(heaviest)].name,
        widest_moment=graph.ops[order[live.index(peak)]].name,
    )


def in_patches(graph: Graph, precision: str) -> Footprint:
    """Return the footprint of a graph whose first layers may be computed patch by patch (`backends/c_qemu/patches`).

    Of such a stage nothing has to exist whole but the image and what it gives; so this bound on RAM is weaker.
    """
    found, size = footprint(graph, precision), BYTES[precision]
    made = steps(graph, precision)
    live = live_sizes(made, best_order(made))
    later = [max(live[at + 1 :], default=0) for at in range(len(live))]
    peaks = [max(live)]
    for at, op in enumerate(graph.ops[:-1]):
        if op.kind not in _BY_ROWS or op.flat:
            break
        if not any(read < at for one in graph.ops[at + 1 :] for read in one.inputs):  # nothing else is read later
            peaks.append(max(made[at].size, later[at]))
    saved = max(live) - min(peaks)
    return replace(found, ram_lower_bound_bytes=found.ram_lower_bound_bytes - saved * size)


def steps(graph: Graph, precision: str) -> list[Step]:
    """Return a graph as steps for `peak_memory`, sizes and lags in elements.

    Activations and flattening are no steps: where a generator writes them as operators of their own, as c_qemu
    does at float32, they run in place.
    """
    sizes = [_elements(op.shape) for op in graph.ops]
    made = [_step(op, size) for op, size in zip(graph.ops, sizes, strict=True)]
    if precision == "int8":
        made = [step._replace(scratch=_scratch(op)) for op, step in zip(graph.ops, made, strict=True)]
    made[-1] = made[-1]._replace(size=0)  # the network's output has a buffer of its own
    return made


def _step(op: Op, size: int) -> Step:
    if op.kind in ("conv", "max_pool", "avg_pool"):
        groups = op.groups if op.kind == "conv" else op.shape[0]
        reach = (op.kernel - 1) * op.dilation
        lags: tuple[Lag, ...] = (_window_lag(groups, op.in_shape, op.shape, reach, op.stride, op.padding, op.flat),)
    elif op.kind == "concat":
        first = _elements(op.in_shape)
        lags = (IN_PLACE, Lag(first, APART.after))
    elif op.kind == "mul":
        lags = (IN_PLACE, Lag(size - op.shape[0], APART.after))  # the second has one factor a channel
    elif op.kind == "add" and op.inputs[0] == op.inputs[1]:  # a sum of one value with itself, which is read once
        return Step(op.inputs[:1], size, (IN_PLACE,))
    else:
        lags = (IN_PLACE,) * len(op.inputs)
    if NETWORK_INPUT not in op.inputs:
        return Step(op.inputs, size, lags)
    kept = [(read, lag) for read, lag in zip(op.inputs, lags, strict=True) if read != NETWORK_INPUT]
    return Step(tuple(read for read, _ in kept), size, tuple(lag for _, lag in kept))


def _scratch(op: Op) -> int:
    if op.kind != "conv":
        return 0
    gaps = (op.dilation, op.dilation)
    return scratch_bytes(op.groups, op.in_shape, op.shape, op.window, op.stride, op.padding, gaps)


@lru_cache(maxsize=1 << 14)  # the same few shapes come again and again
def _window_lag(groups: int, read: Shape, written: Shape, reach: int, stride: int, padding: int, flat: bool) -> Lag:
    planes = (read[0] // groups, written[0] // groups)
    rows = Axis(1, 1, 1, 0, 0) if flat else Axis(read[1], written[1], stride, padding, reach)
    columns = Axis(read[2], written[2], stride, padding, reach)
    return window_lag(groups, planes, rows, columns)


def min_ram_bytes(graph: Graph, precision: str) -> int:
    """Return the RAM below which no toolchain runs a graph layer by layer, in bytes; weaker than `footprint`'s bound.

    The largest set of tensors that exist whole between two operators, in the best order; input and output are tensors
    among the others. What only pools and sums read counts as nothing, since they may be fused with what computes it.
    Left out: inference by patches, which never holds a whole tensor of the first layers.
    """
    whole = {read for op in graph.ops if op.kind not in _FUSIBLE for read in op.inputs} | {len(graph.ops) - 1}
    made = [Step((), _elements(graph.input_shape), ())]
    for at, op in enumerate(graph.ops):
        size = _elements(op.shape) if at in whole else 0
        reads = tuple(dict.fromkeys(read + 1 for read in op.inputs))  # a sum of one value with itself reads it once
        made.append(Step(reads, size, (ANYWHERE,) * len(reads)))
    return max(live_sizes(made, best_order(made))) * BYTES[precision]


def check_bounds(graph: Graph, task: Task) -> tuple[Violation, ...]:
    """Return the violations that a graph's footprint alone proves; empty means that a toolchain has to be asked."""
    return check(footprint(graph, task.precision), task.ram_limit_bytes, task.flash_limit_bytes)


def check(found: Footprint, ram_limit_bytes: int, flash_limit_bytes: int) -> tuple[Violation, ...]:
    """Return the violations of the analytic rung: empty means that a linker has to be asked."""
    rows = (
        ("ram", found.widest_moment, found.ram_lower_bound_bytes, ram_limit_bytes, "live tensors, input and output"),
        ("flash", found.largest_weights, found.flash_lower_bound_bytes, flash_limit_bytes, "weights and biases"),
    )
    return tuple(
        over_limit(Rung.ANALYTIC, resource, where, need, limit, what=what, part=f" (largest at {where})")
        for resource, where, need, limit, what in rows
        if need > limit
    )


def _elements(shape: Shape) -> int:
    return shape[0] * shape[1] * shape[2]
