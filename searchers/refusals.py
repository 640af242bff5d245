"""What earlier refusals settle: a network no narrower anywhere than one without room for it is refused as well."""

from collections import defaultdict
from typing import Any, NamedTuple

from automcu_ray.graph import Graph
from automcu_ray.record import Record
from automcu_ray.task import Task

_BYTES = ("ram", "flash")


class Form(NamedTuple):
    """A graph but for its widths: whoever shares it differs in the channels of its operators alone."""

    input_shape: tuple[int, int, int]
    ops: tuple[tuple[Any, ...], ...]


class Refusals:
    """Keeps the widths of refused networks and says which others would be refused for the same reason.

    Networks of equal form have the same operators in the same order, at the same sizes of images; so one that has at
    least as many channels everywhere has no fewer weights, and no smaller tensor. That much is certain. That a
    toolchain's own part, its code and how its planner packs tensors, does not shrink as widths grow is taken for
    granted: a planner that packs a wider network better would make this wrong. A skip that appears or goes because
    widths come to be equal makes another form.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.narrowest: dict[Form, list[tuple[int, ...]]] = defaultdict(list)

    def learn(self, record: Record) -> None:
        """Keep a refusal for want of RAM or Flash, at whichever rung; everything else is none of this."""
        report, structure = record.feasibility, record.candidate.structure
        if structure is None or record.status != "infeasible" or report is None:
            return
        if any(violation.resource in _BYTES and violation.over_bytes for violation in report.violations):
            form, widths = _read(self.task.graph(structure))
            if not self._covered(form, widths):
                kept = [other for other in self.narrowest[form] if not _no_narrower(other, widths)]
                self.narrowest[form] = [*kept, widths]

    def cover(self, graph: Graph) -> bool:
        """Return whether a network of the same form was refused though nothing of it was wider."""
        return self._covered(*_read(graph))

    def _covered(self, form: Form, widths: tuple[int, ...]) -> bool:
        return any(_no_narrower(widths, refused) for refused in self.narrowest.get(form, ()))


def _read(graph: Graph) -> tuple[Form, tuple[int, ...]]:
    ops = tuple(
        (op.kind, op.inputs, op.shape[1:], op.kernel, op.stride, op.padding, op.groups > 1, op.use_bn, op.activation)
        for op in graph.ops
    )
    return Form(graph.input_shape, ops), tuple(op.shape[0] for op in graph.ops)


def _no_narrower(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(ours >= theirs for ours, theirs in zip(one, other, strict=True))
