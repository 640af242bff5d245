"""What decides how many instructions an operator takes: how often each part of c_qemu's int8 kernels runs.

The counts follow `backends/c_qemu/kernels`: four pixels at a time where the arena has room for that, else window by
window; depthwise by copied rows. What one run of a part costs is fitted to measurements (`instruction_model`).
The arena may have what a firmware's `ram_bytes` leave beside input, output and stack, where that is more than its
tensors need.

A part is named "function: part"; an ending says where GCC specialises the function: " alone" if one operator alone
calls it, whose sizes are constants then, " alike" if all that do have the same window.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from math import prod

from automcu_ray.networks.graph import Graph, Op
from automcu_ray.problem.target import Core
from automcu_ray.sizing import instruction_features_helium as helium
from automcu_ray.sizing.footprint import steps
from automcu_ray.sizing.peak_memory import best_order, live_sizes
from automcu_ray.sizing.scratch import (
    ALIGNMENT,
    dsp_depthwise_bytes,
    is_depthwise,
    reads_apart,
    row_values,
    rows_as_one,
    strip_rows,
)

_SCALAR: tuple[Core, ...] = ("cortex-m0", "cortex-m0plus", "cortex-m3")
_DSP: tuple[Core, ...] = ("cortex-m4f", "cortex-m7f", "cortex-m7d", "cortex-m33f")
_WINDOW_BY_WINDOW: tuple[Core, ...] = ("cortex-m0", "cortex-m0plus")  # never four pixels at a time, two depthwise
_BY_WINDOW = ("narrow", "wide", "threes", "depthwise", "apart")  # functions whose loops go over a window
BESIDE_BYTES = 1040  # of RAM beside tensors: stack, start-up and harness
ENDINGS = (" alike", "", " alone")
_FREE = ("none", "relu", "relu6")  # activations that are folded into the rounding before them


def features(graph: Graph, core: Core, ram_bytes: int = 0) -> list[Counter[str]]:
    """Return, for each operator of a graph at int8, how often each part of its kernel runs.

    `ram_bytes`: what a firmware may take; 0 stands for as little as can be.
    """
    made = [
        step._replace(scratch=_dsp_scratch(op)) if core in _DSP and _is_depthwise(op) else step
        for step, op in zip(steps(graph, "int8"), graph.ops, strict=True)
    ]
    order = best_order(made)
    live = dict(zip(order, live_sizes(made, order), strict=True))
    ends = prod(graph.input_shape) + prod(graph.ops[-1].shape)
    room = max(*live.values(), ram_bytes - BESIDE_BYTES - ends)
    counts = []
    for at, op in enumerate(graph.ops):
        if op.kind in ("conv", "norm"):
            spare = room - live[at] + made[at].scratch
            found = _convolution(op, core, spare)
        else:
            found = _plain(op, core)
        if op.activation not in _FREE:
            found[f"{op.activation}: values"] += op.shape[0] * op.shape[1] * op.shape[2]
        counts.append(found)
    callers: dict[str, list[tuple[int, ...]]] = {}
    for op, found in zip(graph.ops, counts, strict=True):
        for function in {_function(name) for name in found}:
            callers.setdefault(function, []).append((op.kernel, op.stride, op.padding))
    endings = {function: _ending(function, windows) for function, windows in callers.items()}
    return [Counter({name + endings[_function(name)]: n for name, n in found.items() if n}) for found in counts]


def functions(graph: Graph, core: Core, ram_bytes: int = 0) -> list[set[str]]:
    """Return, for each operator of a graph at int8, the functions that compute it, each with its ending."""
    return [set(map(_specialised, counts)) for counts in features(graph, core, ram_bytes)]


@cache  # of the few hundred names there are
def _specialised(name: str) -> str:
    ending = next((ending for ending in ENDINGS if ending and name.endswith(ending)), "")
    return _function(name) + ending


def _ending(function: str, windows: Sequence[tuple[int, ...]]) -> str:
    if len(windows) == 1:
        return " alone"
    return " alike" if function in _BY_WINDOW and len(set(windows)) == 1 else ""


@cache
def _function(name: str) -> str:
    return name.partition(":")[0]


def _is_depthwise(op: Op) -> bool:
    return op.kind in ("conv", "norm") and is_depthwise(op.groups, op.in_shape, op.shape)


def _plain(op: Op, core: Core) -> Counter[str]:
    channels, height, width = op.shape
    outputs, inputs = channels * height * width, op.in_shape[0] * op.in_shape[1] * op.in_shape[2]
    if op.kind == "linear":
        return _dot_products("linear", core, 1, channels, inputs)
    if op.kind in ("max_pool", "avg_pool"):
        values = outputs * op.kernel**2
        return Counter(
            {f"{op.kind}: layers": 1, f"{op.kind}: rows": channels * height, f"{op.kind}: values": values}
            | {f"{op.kind}: {min(op.kernel, 4)}x windows": outputs}
        )
    if op.kind == "global_pool":
        return Counter({"global_pool: layers": 1, "global_pool: channels": channels, "global_pool: values": inputs})
    if op.kind == "mul":
        return Counter({"mul: layers": 1, "mul: channels": channels, "mul: values": outputs})
    return Counter({f"{op.kind}: layers": 1, f"{op.kind}: values": outputs})


def _convolution(op: Op, core: Core, spare: int) -> Counter[str]:
    """Return the counts of a convolution for whose scratch there are `spare` bytes."""
    plane = op.shape[1] * op.shape[2]
    if op.groups == 1 and op.kernel == 1 and plane == op.in_shape[1] * op.in_shape[2] == 1:
        return _dot_products("linear", core, 1, op.shape[0], op.in_shape[0])
    if _is_depthwise(op):
        return _apart(op) if core in _DSP and _is_apart(op) else _depthwise(op, core, spare)
    if core == "cortex-m55d" and plane > 2 and (wide := helium.convolution(op, spare)):
        return wide
    depth = op.in_shape[0] // op.groups * op.kernel**2
    padded = depth if core in _SCALAR else _up(depth, 4)
    each = 4 if core in _SCALAR else 8
    if core not in _WINDOW_BY_WINDOW and core != "cortex-m55d" and plane > 2 and each * padded + ALIGNMENT - 1 <= spare:
        return _wide(op, core, padded)
    pixels = op.groups * plane
    copied = Counter(_window_counts("narrow", pixels, op))
    return copied + _dot_products("narrow", core, pixels, op.shape[0] // op.groups, depth)


def _dot_products(caller: str, core: Core, times: int, outputs: int, inputs: int) -> Counter[str]:
    """Return the counts of a vector by a matrix, four rows of it at a time; what is left of rows and inputs apart."""
    if core == "cortex-m55d":
        return helium.dot_products(caller, times, outputs, inputs)
    together, alone, whole = outputs // 4, outputs % 4, inputs // 4
    return Counter(
        {f"{caller}: layers": 1, "products: vectors": times, "products: outputs": times * outputs}
        | {"products: fours": times * together, "products: rows": times * alone}
        | {"products: fours by four": times * together * whole, "products: rows by four": times * alone * whole}
        | {"products: ends of fours": times * together * (inputs % 4), "products: ends": times * alone * (inputs % 4)}
        | {"products: ragged fours": times * together * (inputs % 4 > 0)}
        | {"products: ragged rows": times * alone * (inputs % 4 > 0)}
    )


def _wide(op: Op, core: Core, depth: int) -> Counter[str]:
    """Return the counts of packing four pixels and multiplying them by all channels of a group."""
    channels, (_, height, width), (_, in_height, in_width) = op.shape[0] // op.groups, op.shape, op.in_shape
    if op.kernel == op.stride == 1 and op.padding == 0:
        height, width, in_width = 1, height * width, in_height * in_width
    even = _up(channels, 2)
    values = op.in_shape[0] // op.groups * op.kernel**2
    in_rows, alone = height * -(-width // 4), -(-height * width // 4)
    by_rows = op.stride <= 2 and in_width >= 4 and in_rows * (12 + 4 * even) <= 8 * height * width + alone * 4 * even
    blocks = op.groups * (in_rows if by_rows else alone)
    full = op.groups * (height * (width // 4) if by_rows else height * width // 4)
    in_threes = core in _DSP and by_rows and op.kernel == 3
    name = "threes" if in_threes else "wide"
    counts = Counter({f"{name}: layers": 1, f"{name}: blocks": blocks})
    counts += Counter(
        {"multiply: blocks": blocks, "multiply: channels": blocks * even, "multiply: products": blocks * even * depth}
        | {"multiply: stores": full * channels, "multiply: ragged stores": (blocks - full) * channels}
        | {"multiply: ragged values": (op.groups * height * width - 4 * full) * channels}
    )
    if not by_rows:
        pixels = op.groups * height * width
        return counts + Counter(_window_counts("wide", pixels, op))
    starts = [4 * at * op.stride - op.padding for at in range(-(-width // 4))]
    ends = op.kernel - 1 + 4 * op.stride
    inside = op.groups * height * sum(start >= 0 and start + ends <= in_width for start in starts)
    step = "single" if op.kernel == op.stride == 1 else f"stride {op.stride}"
    if in_threes:
        outside = values // 3 * (blocks - inside)
        return counts + Counter(
            {f"threes: {step} rows": inside * values // 3, f"threes: {step} rows at edges": outside}
            | {f"threes: {step} blocks at edges": blocks - inside, "threes: planes": blocks * values // 9}
        )
    return counts + Counter(
        {f"wide: {step} words": inside * values, f"wide: {step} words at edges": (blocks - inside) * values}
        | {f"wide: {step} rows": blocks * values // op.kernel, f"wide: {step} planes": blocks * values // op.kernel**2}
        | {"wide: unpacked words": blocks * depth}
    )


def _window_counts(function: str, pixels: int, op: Op) -> dict[str, int]:
    """Return how often the loops over a window's values run, for so many pixels."""
    planes = pixels * op.in_shape[0] // op.groups
    inside, name = op.in_shape[0] * prod(_inside(op)), f"{function}: {'1x1' if op.kernel == 1 else 'larger'}"
    return (
        {f"{name} pixels": pixels, f"{name} planes": planes, f"{name} rows": planes * op.kernel}
        | {f"{name} values": planes * op.kernel**2, f"{name} values inside": inside}
    )  # fmt: skip


def _inside(op: Op) -> tuple[int, ...]:
    """Return how many taps of all windows meet the image, along each axis."""
    return tuple(
        sum(0 <= at * op.stride - op.padding + tap < size for at in range(count) for tap in range(op.kernel))
        for count, size in zip(op.shape[1:], op.in_shape[1:], strict=True)
    )


def _is_apart(op: Op) -> bool:
    return reads_apart(op.in_shape, op.shape, (op.kernel, op.kernel), op.stride, op.padding)


def _dsp_scratch(op: Op) -> int:
    return dsp_depthwise_bytes(op.groups, op.in_shape, op.shape, (op.kernel, op.kernel), op.stride, op.padding)


def _apart(op: Op) -> Counter[str]:
    """Return the counts of a depthwise convolution whose rows are read as they lie, at every second column."""
    rows, padded = op.shape[0] * op.shape[1], min(op.padding, 1)
    return Counter(
        {"apart: layers": 1, "apart: channels": op.shape[0], "apart: rows": rows}
        | {"apart: blocks": rows * (op.shape[2] // 4 - padded), "apart: padded blocks": rows * padded}
    )


def _depthwise(op: Op, core: Core, spare: int) -> Counter[str]:
    """Return the counts of a depthwise convolution that copies rows first."""
    (channels, height, width), reach = op.shape, op.kernel - 1
    step = row_values(op.in_shape, op.shape, op.stride, op.padding, reach)
    is_dsp = core in _DSP  # copies each row once, into a ring
    as_one = core == "cortex-m55d" and rows_as_one(width)
    strip = 1 if is_dsp else strip_rows(height, step, op.stride, reach, as_one=as_one)
    if ((strip - 1) * op.stride + op.kernel) * step + ALIGNMENT - 1 > spare:
        strip, as_one = 1, False
    strips, outputs = -(-height // strip), channels // op.groups
    rows = op.groups * ((height - strips) * op.stride + strips * op.kernel)
    times = op.groups if outputs == 1 else op.groups * (1 + strips * outputs)
    cells, inside = rows * step, 0
    if is_dsp:
        first, last = -op.padding, (height - 1) * op.stride - op.padding + reach
        rows = op.groups * ((height - 1) * min(op.stride, op.kernel) + op.kernel)
        inside = min(rows, op.groups * (min(last, op.in_shape[1] - 1) - max(first, 0) + 1))
        times, cells = channels, inside * op.in_shape[2]
    if core == "cortex-m55d":
        return helium.depthwise(op, strips, rows, step, times, strip if as_one else 0)
    each = 2 if core in _WINDOW_BY_WINDOW else 4
    full, blocks = channels * height * (width // each), channels * height * -(-width // each)
    window = f"{op.kernel}x{op.kernel}" + f" by {op.stride}" * (op.kernel == 3 and op.stride <= 2)  # of their own
    window += f" by {op.stride}" * (is_dsp and op.kernel == 5)
    return Counter(
        {"depthwise: layers": 1, "depthwise: strips": op.groups * strips, "depthwise: taps": times * op.kernel**2}
        | {"depthwise: channels": times, "depthwise: rows": rows, "depthwise: cells": cells}
        | {"depthwise: rows inside": inside, "depthwise: odd cells": cells * (op.padding & 1) * is_dsp}
        | {"depthwise: output rows": channels * height, f"depthwise: {window} blocks": blocks}
        | {"depthwise: ragged blocks": blocks - full, "depthwise: ragged values": channels * height * (width % each)}
    )


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
