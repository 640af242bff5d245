"""Dominance pruning: a network at least as wide everywhere as one that was refused for its size is refused too."""

from collections import defaultdict
from typing import Any

from automcu_ray.networks.graph import Graph
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record

_BYTES = ("ram", "flash")
# A graph without its widths, only to be compared: those of one topology differ in their operators' channels alone.
Topology = tuple[Any, ...]


class DominancePruning:
    """Keeps the widths of refused networks, and tells which others would be refused for the same reason.

    Of two networks of equal topology, one with at least as many channels everywhere has no fewer weights and no smaller
    tensor. Assumed, and not proved, is that a toolchain's overhead does not shrink as widths grow: code, and gaps that
    its planner leaves between tensors. A skip that appears because widths come to be equal changes the topology.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.narrowest: dict[Topology, list[tuple[int, ...]]] = defaultdict(list)

    def learn(self, record: Record) -> None:
        """Keep the widths of a network that any rung refused for its RAM or Flash; ignore all other records."""
        report, structure = record.feasibility, record.candidate.structure
        if structure is None or record.status != "infeasible" or report is None:
            return
        if any(violation.resource in _BYTES and violation.over_bytes for violation in report.violations):
            topology, widths = _read(self.task.graph(structure))
            if not self._covered(topology, widths):
                kept = [other for other in self.narrowest[topology] if not _no_narrower(other, widths)]
                self.narrowest[topology] = [*kept, widths]

    def cover(self, graph: Graph) -> bool:
        """Return whether a network of equal topology that is nowhere wider was refused."""
        return self._covered(*_read(graph))

    def _covered(self, topology: Topology, widths: tuple[int, ...]) -> bool:
        return any(_no_narrower(widths, refused) for refused in self.narrowest.get(topology, ()))


def _read(graph: Graph) -> tuple[Topology, tuple[int, ...]]:
    ops = tuple(
        (
            *(op.kind, op.inputs, op.shape[1:], op.kernel, op.dilation, op.stride, op.padding),
            # More groups are fewer weights: of a depthwise convolution they grow with the width, of others they count.
            *("depthwise" if 1 < op.groups == op.in_shape[0] else op.groups, op.use_bn, op.activation),
        )
        for op in graph.ops
    )
    return (graph.input_shape, ops), tuple(op.shape[0] for op in graph.ops)


def _no_narrower(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(ours >= theirs for ours, theirs in zip(one, other, strict=True))
