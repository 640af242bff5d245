"""What a MAX78000 or MAX78002 cannot run, and what it has too little of, whatever the placement."""

import math
from collections.abc import Sequence

from automcu_ray.core.feasibility import Rung, Violation
from automcu_ray.networks.graph import Graph, Op
from automcu_ray.problem.accelerator import Accelerator
from backends.ai8x.network import Layer, window

PROCESSORS = 64
GROUP = 16  # processors that share a bias memory
SHARING = 4  # processors that share a part of the data memory, and so the channels in one of its words
FLATTENED = 256  # rows times columns in front of a linear layer: README.md of ai8x-synthesis
_POOLS = ("max_pool", "avg_pool", "global_pool")


class Refused(Exception):
    """A network that the accelerator cannot take; `violations` name operator or layer, memory and bytes."""

    def __init__(self, *violations: Violation) -> None:
        super().__init__("; ".join(violation.message for violation in violations))
        self.violations = violations


def passes(channels: int) -> int:
    """Return in how many passes all processors handle some channels."""
    return math.ceil(channels / PROCESSORS)


def processors(channels: int) -> int:
    """Return how many processors handle some channels: beyond all of them, a multiple of four in several passes."""
    share = math.ceil(channels / passes(channels))
    return share if channels <= PROCESSORS else math.ceil(share / SHARING) * SHARING


def check_operators(graph: Graph, accelerator: Accelerator) -> None:
    """Raise Refused, with a violation for each of them, where there are operators that the accelerator cannot run."""
    reasons = [(op, _refusal(op, accelerator)) for op in graph.ops]
    last = graph.ops[-1]
    if last.kind not in ("conv", "linear") or last.activation != "none":
        reasons.append((last, "the last operator must be a convolution or linear, without activation"))
    found = [cannot_run(op.name, f"{accelerator.name} cannot run it: {reason}") for op, reason in reasons if reason]
    if found:
        raise Refused(*found)


def cannot_run(where: str, reason: str) -> Violation:
    """Return the violation for one operator."""
    return Violation(rung=Rung.ANALYTIC, resource="operator", where=where, message=f"{where}: {reason}")


def _refusal(op: Op, accelerator: Accelerator) -> str:
    """Return why an operator cannot run; "" where it can."""
    if op.kind in ("mul", "concat", "relu", "norm"):
        return f"it has no operator {op.kind}"
    if op.flat and op.kernel > 1:
        return "a window of one row: it has square ones"
    if op.kind == "conv":
        known = accelerator.operator("conv" if op.groups == 1 else "depthwise")
        if known is None or (op.groups > 1 and not op.groups == op.in_shape[0] == op.shape[0]):
            return f"a convolution in {op.groups} groups"
        found = {"kernel_size": op.kernel, "stride": op.stride, "padding": op.padding, "activation": op.activation}
        for field, value in found.items():
            if not known.allows(field, value):
                return f"{field} {value}, it does {', '.join(map(str, known.limited[field]))}"
        return ""
    if op.kind in _POOLS and max(window(op)) > accelerator.max_window.value:
        return f"a pooling window of {max(window(op))}, more than {accelerator.max_window.value}"
    return "" if op.activation in ("none", "relu") else f"activation {op.activation}"


def check_counts(layers: Sequence[Layer], accelerator: Accelerator) -> None:
    """Raise Refused where there are too many layers, or a layer has too many channels, rows or columns."""
    limit, last = accelerator.max_layers.value, layers[-1].name
    resets = 0
    if accelerator.operator("depthwise"):  # MAX78002: the toolchain inserts a layer for an average right behind a sum
        averages = (layer.pool is not None and layer.pool.average for layer in layers[1:])
        resets = sum(average and len(before.inputs) > 1 for before, average in zip(layers, averages, strict=False))
    if len(layers) > limit or len(layers) - 1 + resets > limit:
        raise _too_many("layers", last, f"{last}: layer {len(layers) + resets}, {accelerator.name} has {limit}")
    for layer in layers:
        extents = (*layer.in_shape[1:], *layer.shape[1:])
        pools_alone = layer.pool is not None and layer.weights == "none" and layer.shape[1:] != (1, 1)
        rows = (
            ("channels", max(layer.in_shape[0], layer.shape[0]), accelerator.max_channels.value),
            ("rows or columns", max(extents), accelerator.max_extent.value),
            ("channels in a sum", layer.in_shape[0] * (len(layer.inputs) > 1), accelerator.max_added_channels.value),
            ("channels in a pooling", layer.in_shape[0] * pools_alone, accelerator.max_pooled_channels.value),
            ("flattened values of a channel", math.prod(layer.in_shape[1:]) * layer.flatten, FLATTENED),
        )
        for what, found, most in rows:
            if found > most:
                message = f"{layer.name}: {found} {what}, {accelerator.name} does up to {most}"
                raise _too_many("channels", layer.name, message)


def _too_many(resource: str, where: str, message: str) -> Refused:
    return Refused(Violation(rung=Rung.ANALYTIC, resource=resource, where=where, message=message))


def too_large(resource: str, where: str, found: int, limit: int, what: str, verb: str = "has") -> Refused:
    """Return the error for a memory that is too small: `what` and how much it needs, then what there is."""
    bare = Violation(rung=Rung.ANALYTIC, resource=resource, where=where, message=f"{what} {verb} {limit:,}")
    return Refused(bare.replace(found_bytes=found, limit_bytes=limit))
