"""Infeasibility check: where every proposal was refused, the gate is asked about the smallest possible networks."""

from itertools import product
from operator import itemgetter
from typing import Any

from automcu_ray.core.feasibility import FeasibilityReport
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.graph import Graph
from automcu_ray.networks.spec import MAX_POSITIONS
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record, Status
from automcu_ray.sizing.footprint import footprint
from automcu_ray.sizing.near_misses import amount, excess, known_size, limits, shortages, way_out
from searchers.gate.gate import Gate

PATIENCE = 16  # refusals for want of bytes, before anything has trained
_PROPOSER = "infeasibility_check"
_MIX = {"type": "pointwise", "out_channels": 1}
_WINDOWS: tuple[dict[str, Any], ...] = (
    _MIX,
    *({"type": "conv", "out_channels": 1, "kernel_size": size, "stride": 2} for size in (1, 3, 5, 7)),
    *(
        {"type": kind, "kernel_size": size, "stride": 8}
        for kind in ("avg_pool", "max_pool")
        for size in range(8, 1, -1)
    ),
)
_ENDS: tuple[tuple[tuple[dict[str, Any], ...], int], ...] = (
    ((_MIX,), 1),
    *(((), positions) for positions in range(1, MAX_POSITIONS + 1)),
)


class InfeasibilityCheck:
    """Asks the gate about the smallest networks of a task, once, after `PATIENCE` refusals and no trained network.

    If all of them exceed the limit of the same resource, no network fits and the search can end. They are not trained,
    and no record is made of them. Cells and generated code are not checked.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.refused = 0
        self.open: dict[str, Candidate] | None = None  # None: not asked yet
        self.answers: list[Record] = []

    def learn(self, record: Record) -> None:
        """Count a refusal for bytes; once a network has trained, something fits and nothing is asked."""
        if record.training is not None:
            self.open, self.answers = {}, []
        self.refused += record.candidate.spec is not None and excess(record) is not None

    def ask(self, gate: Gate) -> str:
        """Ask the gate once there are enough refusals; return why nothing can fit, or "" while that is not known."""
        if self.open is None and self.refused >= PATIENCE:
            probes = smallest(self.task)
            self.open = {candidate.hash: candidate for candidate in probes}
            for candidate in probes:
                if (report := gate.submit(candidate)) is not None:
                    self.hear(candidate, report)
        return "" if self.open or not self.answers else _verdict(self.task, self.answers)

    def hear(self, candidate: Candidate, report: FeasibilityReport) -> bool:
        """Take a verdict of the gate; return whether it was about one of the smallest networks."""
        if candidate.proposer != _PROPOSER:
            return False
        if self.open and self.open.pop(candidate.hash, None):
            status: Status = "ok" if report.feasible else "infeasible"
            self.answers.append(Record(candidate=candidate, status=status, feasibility=report))
        return True


def smallest(task: Task) -> list[Candidate]:
    """Return the networks of a task with the least RAM, Flash and operations by their lower bounds, of each kind.

    They have one window, and after it at most a layer of one channel. Input and output have buffers of their own and
    the first layer's output lies beside them, so a longer network needs no less RAM; it has more weights as well. Heads
    that keep positions have more weights than those that pool globally, and may do without the code of that pool.
    Kinds differ in the kinds of their operators. Bounds do not compare kinds: the code of an operator may take more
    Flash than the weights it saves, and a toolchain may refuse a network that only pools.
    Of equal windows the largest is taken; another one may still link to a few bytes less (c_qemu: 16 at most).
    """
    kinds: dict[tuple[str, ...], list[tuple[int, int, int, Candidate]]] = {}
    for window, (rest, positions) in product(_WINDOWS, _ENDS):
        spec = {"backbone": [window, *rest], "head": {"positions": positions}}
        candidate = task.space.candidate_or_none(spec, proposer=_PROPOSER)
        if candidate is None or candidate.spec is None:
            continue  # a window larger than the image, an operator that the target lacks
        graph = task.space.graph(candidate.spec)
        bounds = footprint(graph, task.precision)
        sizes = bounds.ram_lower_bound_bytes, bounds.flash_lower_bound_bytes, _operations(graph)
        kinds.setdefault(tuple(op.kind for op in graph.ops), []).append((*sizes, candidate))
    orders = [itemgetter(0, 1), itemgetter(1, 0)]
    if task.instructions_limit is not None:
        orders.append(itemgetter(2, 0))
    chosen = [min(kind, key=order)[-1] for kind in kinds.values() for order in orders]
    return list({candidate.hash: candidate for candidate in chosen}.values())


def _operations(graph: Graph) -> int:
    """Return how many values all windows of a network hold: what its instructions grow with."""
    return sum(op.macs or op.shape[0] * op.shape[1] * op.shape[2] * op.kernel**2 for op in graph.ops)


def _verdict(task: Task, answers: list[Record]) -> str:
    """Return which resource all of them lack, and what would have to give; "" where there is none.

    What a toolchain refuses for another reason than bytes says nothing about sizes.
    """
    sized = [answer for answer in answers if answer.status == "ok" or shortages(answer)]
    for resource, limit in limits(task).items():
        sizes = [known_size(answer, resource) for answer in sized if resource in shortages(answer)]
        if sizes and len(sizes) == len(sized):
            known = [size for size in sizes if size is not None]
            least = min(known, key=lambda size: size.rank)
            need = f"{'at least ' if least.at_least else ''}{amount(resource, least.amount)}"
            change = way_out(task, resource, least.amount)
            return f"nothing can fit: even the smallest network needs {need}, and the limit is {limit:,}; {change}"
    return ""
