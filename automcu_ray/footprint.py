"""What a graph needs at least, worked out without building it: the analytic rung."""

from dataclasses import dataclass

from automcu_ray.feasibility import Rung, Violation
from automcu_ray.graph import Graph, Op
from automcu_ray.task import Task

BYTES = {"int8": 1, "float32": 4}
BIAS_BYTES = 4  # int32 or float32
_IN_PLACE = ("add", "mul")  # element-wise: the result may take an input's place


@dataclass(frozen=True)
class Footprint:
    """Sizes of a network; the two lower bounds hold for every backend that runs the operators in order.

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

    RAM is the largest sum of tensors alive at one operator (liveness in execution order, Liberis & Lane 2019,
    arXiv:1910.05110), plus the input and the output, which stay in buffers of their own.
    """
    size = BYTES[precision]
    live = live_bytes(graph, size)
    peak = max(range(len(live)), key=live.__getitem__)
    heaviest = max(graph.ops, key=lambda op: op.weights)
    return Footprint(
        parameters=sum(op.weights + op.biases for op in graph.ops),
        macs=sum(op.macs for op in graph.ops),
        flash_lower_bound_bytes=sum(op.weights * size + op.biases * BIAS_BYTES for op in graph.ops),
        ram_lower_bound_bytes=live[peak] + _elements(graph.input_shape) * size + _tensor(graph.ops[-1], size),
        largest_weights=heaviest.name,
        widest_moment=graph.ops[peak].name,
    )


def live_bytes(graph: Graph, size: int) -> list[int]:
    """Return, for each operator, the bytes of the intermediate tensors alive while it runs.

    The network's input and output are not counted. An element-wise result takes no room of its own.
    """
    last_use = {index: at for at, op in enumerate(graph.ops) for index in op.inputs if index >= 0}
    moments = []
    for at, op in enumerate(graph.ops):
        alive = [_tensor(graph.ops[i], size) for i in range(at) if last_use[i] >= at]
        writes = at < len(graph.ops) - 1 and op.kind not in _IN_PLACE
        moments.append(sum(alive) + (_tensor(op, size) if writes else 0))
    return moments


def foresee(graph: Graph, task: Task) -> tuple[Violation, ...]:
    """Return the violations that a graph's footprint alone proves; empty means that a toolchain has to be asked."""
    return check(footprint(graph, task.precision), task.ram_limit_bytes, task.flash_limit_bytes)


def check(found: Footprint, ram_limit_bytes: int, flash_limit_bytes: int) -> tuple[Violation, ...]:
    """Return the violations of the analytic rung: empty means that a linker has to be asked."""
    rows = (
        ("ram", found.widest_moment, found.ram_lower_bound_bytes, ram_limit_bytes, "live tensors, input and output"),
        ("flash", found.largest_weights, found.flash_lower_bound_bytes, flash_limit_bytes, "weights and biases"),
    )
    return tuple(
        Violation(
            rung=Rung.ANALYTIC,
            resource=resource,
            where=where,
            found_bytes=need,
            limit_bytes=limit,
            message=f"{resource}: {what} alone need {need} bytes, {need - limit} more than the limit of {limit} "
            f"(largest at {where})",
        )
        for resource, where, need, limit, what in rows
        if need > limit
    )


def _elements(shape: tuple[int, int, int]) -> int:
    return shape[0] * shape[1] * shape[2]


def _tensor(op: Op, size: int) -> int:
    return _elements(op.shape) * size
