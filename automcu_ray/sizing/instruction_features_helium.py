"""How often the parts of the int8 kernels run on cores with Helium, as `instruction_features` has it for the others."""

from collections import Counter
from math import ceil, prod

from automcu_ray.networks.graph import Op
from automcu_ray.sizing.scratch import ALIGNMENT


def convolution(op: Op, spare: int) -> Counter[str] | None:
    """Return the counts where windows are packed in eights by a table of places; None without room for that."""
    taps, plane, inputs = op.kernel**2, prod(op.in_shape[1:]), op.in_shape[0] // op.groups
    strip = min(inputs, ((1 << 16) - 1) // plane, max(8, 64 // taps))
    if not strip or op.kernel > 256:
        return None
    parts, places = ceil(inputs / strip), 8 * ceil(strip * taps / 8)
    last = (inputs - (parts - 1) * strip) * taps
    depth = (parts - 1) * places + last
    if 64 * ceil(depth / 16) + 4 * places + ALIGNMENT - 1 > spare:
        return None
    channels, pixels = op.shape[0] // op.groups, op.groups * prod(op.shape[1:])
    blocks = op.groups * ceil(prod(op.shape[1:]) / 4)
    eights, pairs = (parts - 1) * places // 8 + ceil(last / 8), blocks * ceil(channels / 2)
    whole = op.groups * prod(
        sum(at * op.stride >= op.padding and at * op.stride - op.padding + op.kernel <= size for at in range(count))
        for count, size in zip(op.shape[1:], op.in_shape[1:], strict=True)
    )
    return Counter(
        {"wide: layers": 1, "wide: places": places, "wide: blocks": blocks, "wide: windows": pixels}
        | {"wide: eights": whole * eights, "wide: eights at edges": (pixels - whole) * eights}
        | {"wide: parts": pixels * parts, "multiply: blocks": blocks, "multiply: pairs": pairs}
        | {"multiply: sixteens": pairs * (depth // 16), "multiply: ragged": pairs * (depth % 16 > 0)}
        | {"multiply: channels": blocks * channels}
    )


def dot_products(caller: str, times: int, outputs: int, inputs: int) -> Counter[str]:
    """Return the counts of a vector by a matrix, four rows of sixteen at a time."""
    fours = times * ceil(outputs / 4)
    return Counter(
        {f"{caller}: layers": 1, "products: vectors": times, "products: fours": fours}
        | {"products: sixteens": fours * (inputs // 16), "products: ragged": fours * (inputs % 16 > 0)}
    )


def depthwise(op: Op, strips: int, rows: int, row_values: int, times: int, as_one: int) -> Counter[str]:
    """Return the counts of a depthwise convolution: eight outputs at a time, or four where no more are left.

    Where `as_one` rows are taken as one, always eight.
    """
    channels, height, width = op.shape
    eights, fours = float(width // 8 + (width % 8 > 4)), int(0 < width % 8 <= 4)
    window = "3x3" if op.kernel == 3 else "any"
    window += " next" if op.stride == 1 else " apart"
    outputs, name = channels * height, f"depthwise: {window}"
    if as_one:
        name = f"depthwise: {window.split()[0]} as one"
        last = (height - (strips - 1) * as_one) * width
        outputs, fours = channels * strips, 0
        eights = ((strips - 1) * ceil(as_one * width / 8) + ceil(last / 8)) / strips
    return Counter(
        {"depthwise: layers": 1, "depthwise: strips": op.groups * strips, "depthwise: channels": times}
        | {"depthwise: rows": rows, "depthwise: filled": rows * ceil(row_values / 16)}
        | {"depthwise: copied": rows * ceil(op.in_shape[2] / 16), f"{name} rows": outputs}
        | {f"{name} eights": outputs * eights, f"{name} fours": outputs * fours}
        | {f"{name} taps of eights": outputs * eights * op.kernel**2}
        | {f"{name} taps of fours": outputs * fours * op.kernel**2, f"{name} lines": outputs * op.kernel}
    )
