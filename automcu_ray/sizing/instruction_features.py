"""What decides how many instructions an operator takes: how often each part of c_qemu's int8 kernels runs.

The counts follow `backends/c_qemu/kernels`: four pixels at a time where the arena has room for that, else window by
window; depthwise by copied rows. What one run of a part costs is fitted to measurements (`instruction_model`).
"""

from collections import Counter

from automcu_ray.networks.graph import Graph, Op
from automcu_ray.problem.target import Core
from automcu_ray.sizing.footprint import steps
from automcu_ray.sizing.peak_memory import best_order, live_sizes
from automcu_ray.sizing.scratch import ALIGNMENT, is_depthwise, row_values

_SCALAR: tuple[Core, ...] = ("cortex-m0", "cortex-m0plus", "cortex-m3")
_WINDOW_BY_WINDOW: tuple[Core, ...] = ("cortex-m0", "cortex-m0plus")  # never four pixels at a time
_STRIP = 4  # output rows that a depthwise convolution computes from one copy, where there is room
_FREE = ("none", "relu", "relu6")  # activations that are folded into the rounding before them


def features(graph: Graph, core: Core) -> list[Counter[str]]:
    """Return, for each operator of a graph at int8, how often each part of its kernel runs."""
    made = steps(graph, "int8")
    order = best_order(made)
    live = dict(zip(order, live_sizes(made, order), strict=True))
    room = max(live.values())
    counts = []
    for at, op in enumerate(graph.ops):
        if op.kind in ("conv", "norm"):
            spare = room - live[at] + made[at].scratch
            found = _convolution(op, core, spare)
        else:
            found = _plain(op)
        if op.activation not in _FREE:
            found[op.activation] += op.shape[0] * op.shape[1] * op.shape[2]
        counts.append(found)
    layers = sum(counts, Counter())
    return [
        Counter({name + " alone" if _alone(found, layers) else name: count for name, count in found.items() if count})
        for found in counts
    ]


def _alone(found: Counter[str], layers: Counter[str]) -> bool:
    """Whether an operator is the only one of its network with its kernel: the compiler knows its shape then."""
    return any(name.endswith(" layers") and layers[name] == 1 for name in found)


def _plain(op: Op) -> Counter[str]:
    channels, height, width = op.shape
    outputs, inputs = channels * height * width, op.in_shape[0] * op.in_shape[1] * op.in_shape[2]
    if op.kind == "linear":
        return _dot_products("linear", 1, channels, inputs)
    if op.kind in ("max_pool", "avg_pool"):
        values = outputs * op.kernel**2
        return Counter(
            {f"{op.kind} layers": 1, f"{op.kind} rows": channels * height, f"{op.kind} values": values}
            | {f"{op.kind} {min(op.kernel, 4)}x windows": outputs}
        )
    if op.kind == "global_pool":
        return Counter({"global_pool layers": 1, "global_pool channels": channels, "global_pool values": inputs})
    if op.kind == "mul":
        return Counter({"mul layers": 1, "mul channels": channels, "mul values": outputs})
    return Counter({f"{op.kind} layers": 1, f"{op.kind} values": outputs})


def _convolution(op: Op, core: Core, spare: int) -> Counter[str]:
    """Return the counts of a convolution for whose scratch there are `spare` bytes."""
    plane = op.shape[1] * op.shape[2]
    if op.groups == 1 and op.kernel == 1 and plane == op.in_shape[1] * op.in_shape[2] == 1:
        return _dot_products("linear", 1, op.shape[0], op.in_shape[0])
    if is_depthwise(op.groups, op.in_shape, op.shape):
        return _depthwise(op, core, spare)
    depth = op.in_shape[0] // op.groups * op.kernel**2
    padded = depth if core in _SCALAR else _up(depth, 4)
    each = 4 if core in _SCALAR else 8
    if core not in _WINDOW_BY_WINDOW and plane > 2 and each * padded + ALIGNMENT - 1 <= spare:
        return _wide(op, core, padded)
    pixels = op.groups * plane
    copied = _window_counts("copied", pixels, op)
    return Counter({"narrow layers": 1} | copied) + _dot_products("narrow", pixels, op.shape[0] // op.groups, depth)


def _dot_products(name: str, times: int, outputs: int, inputs: int) -> Counter[str]:
    """Return the counts of a vector by a matrix, four rows of it at a time; what is left of rows and inputs apart."""
    together, alone, whole = outputs // 4, outputs % 4, inputs // 4
    return Counter(
        {f"{name} vectors": times, f"{name} outputs": times * outputs, f"{name} fours": times * together}
        | {f"{name} fours by four": times * together * whole, f"{name} rows by four": times * alone * whole}
        | {f"{name} ends": times * outputs * (inputs % 4 > 0), f"{name} values": times * outputs * inputs}
    )


def _wide(op: Op, core: Core, depth: int) -> Counter[str]:
    """Return the counts of packing four pixels and multiplying them by all channels of a group."""
    channels, (_, height, width), (_, in_height, in_width) = op.shape[0] // op.groups, op.shape, op.in_shape
    if op.kernel == op.stride == 1 and op.padding == 0:
        height, width, in_width = 1, height * width, in_height * in_width
    even = channels if core == "cortex-m55d" else _up(channels, 2)
    values = op.in_shape[0] // op.groups * op.kernel**2
    in_rows, alone = height * -(-width // 4), -(-height * width // 4)
    by_rows = op.stride <= 2 and in_width >= 4 and in_rows * (12 + 4 * even) <= 8 * height * width + alone * 4 * even
    blocks = op.groups * (in_rows if by_rows else alone)
    full = op.groups * (height * (width // 4) if by_rows else height * width // 4)
    counts = Counter(
        {"wide layers": 1, "wide blocks": blocks, "wide channels": blocks * even, "products": blocks * even * depth}
        | {"unpacked words": blocks * depth, "stores": full * channels, "ragged stores": (blocks - full) * channels}
    )
    counts["ragged values"] = (op.groups * height * width - 4 * full) * channels
    if not by_rows:
        pixels = op.groups * height * width
        return counts + Counter(_window_counts("packed", pixels, op))
    starts = [4 * at * op.stride - op.padding for at in range(-(-width // 4))]
    ends = op.kernel - 1 + 4 * op.stride
    inside = op.groups * height * sum(start >= 0 and start + ends <= in_width for start in starts)
    step = "single" if op.kernel == op.stride == 1 else f"stride {op.stride}"
    return counts + Counter(
        {f"{step} words": inside * values, f"{step} words at edges": (blocks - inside) * values}
        | {f"{step} rows": blocks * values // op.kernel, f"{step} planes": blocks * values // op.kernel**2}
    )


def _window_counts(name: str, pixels: int, op: Op) -> dict[str, int]:
    """Return how often the loops over a window's values run, for so many pixels."""
    planes = pixels * op.in_shape[0] // op.groups
    name = f"{name} {op.kernel}x{op.kernel}"
    return {f"{name} pixels": pixels, f"{name} values": planes * op.kernel**2}


def _depthwise(op: Op, core: Core, spare: int) -> Counter[str]:
    (channels, height, width), reach = op.shape, op.kernel - 1
    step = row_values(op.in_shape, op.shape, op.stride, op.padding, reach)
    is_dsp = core not in _SCALAR and core != "cortex-m55d"  # copies each row once, into a ring
    strip = 1 if is_dsp else min(_STRIP, height)
    if ((strip - 1) * op.stride + op.kernel) * step + ALIGNMENT - 1 > spare:
        strip = 1
    strips, outputs = -(-height // strip), channels // op.groups
    rows = op.groups * ((height - strips) * op.stride + strips * op.kernel)
    times = op.groups if outputs == 1 else op.groups * (1 + strips * outputs)
    if is_dsp:
        rows, times = op.groups * ((height - 1) * min(op.stride, op.kernel) + op.kernel), channels
    full, blocks = channels * height * (width // 4), channels * height * -(-width // 4)
    window = f"{op.kernel}x{op.kernel}" + f" by {op.stride}" * (op.kernel == 3 and op.stride <= 2)  # of their own
    return Counter(
        {"depthwise layers": 1, "depthwise strips": op.groups * strips, "depthwise taps": times * op.kernel**2}
        | {"depthwise channels": times, "depthwise rows": rows, "depthwise cells": rows * step}
        | {"depthwise output rows": channels * height, f"depthwise {window} blocks": blocks}
        | {"depthwise ragged blocks": blocks - full, "depthwise ragged values": channels * height * (width % 4)}
    )


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
