"""Pools, sums and products: layers that have no weights."""

from collections.abc import Mapping
from math import prod

import numpy as np

from automcu_ray.sizing.peak_memory import APART, IN_PLACE, Lag
from backends.c_qemu.kernels.layer import Field, Layer
from backends.c_qemu.kernels.window import Window

Shape = tuple[int, ...]


def pool(node: str, kernel: str, x: str, y: str, window: Window, numbers: Mapping[str, Field]) -> Layer:
    """Return the largest values or means of windows."""
    fields: dict[str, Field] = {"channels": window.read[0], **numbers}
    for i, side in enumerate("hw"):
        fields |= {
            f"in_{side}": window.read[i + 1],
            f"out_{side}": window.written[i + 1],
            f"kernel_{side}": window.kernel[i],
            f"stride_{side}": window.stride[i],
            f"dilation_{side}": window.dilation[i],
            f"pad_{('top', 'left')[i]}": window.pad[i],
        }
    return Layer(node, kernel, "pool", (x,), y, fields, {x: window.lag()})


def global_pool(node: str, x: str, y: str, window: Window, scale: np.float32, ends: Mapping[str, int]) -> Layer:
    """Return the means of whole channels; `scale` turns a sum into a mean, too."""
    size = window.read[1] * window.read[2]
    fields = {
        "channels": window.read[0],
        "in_h": window.read[1],
        "in_w": window.read[2],
        "x_scale": float(scale),
        **ends,
    }
    scales = np.array([scale], np.float32)
    return Layer(node, "global_pool", "pool", (x,), y, fields, {x: IN_PLACE}, 0, scales, 255 * size * float(scale))


def pairs(
    node: str,
    kernel: str,
    names: tuple[str, str],
    y: str,
    shapes: tuple[Shape, Shape],
    written: Shape,
    numbers: Mapping[str, Field],
    struct: str = "pairs",
) -> Layer:
    """Return a sum, a product or another function of two, operands repeated as ONNX broadcasts them.

    Raises:
        ValueError: they change more than twice between repeating and going on.
    """
    steps = [_steps((1,) * (len(written) - len(shape)) + shape, written) for shape in shapes]
    stretches: list[list[int]] = []  # count, step of a, step of b
    for size, a, b in zip(written, *steps, strict=True):
        if size == 1:
            continue
        if stretches and stretches[-1][1:] == [size * a, size * b]:  # the axis before goes on seamlessly
            stretches[-1] = [stretches[-1][0] * size, a, b]
        else:
            stretches.append([size, a, b])
    if len(stretches) > 3:
        raise ValueError
    stretches = [[1, 0, 0]] * (3 - len(stretches)) + stretches
    counts, steps_a, steps_b = (tuple(column) for column in zip(*stretches, strict=True))
    fields: dict[str, Field] = {"counts": counts, "steps_a": steps_a, "steps_b": steps_b, **numbers}
    total = prod(written)  # an operand that is repeated is read slower than the output is written
    lags = {name: Lag(total - prod(shape), APART.after) for name, shape in zip(names, shapes, strict=True)}
    return Layer(node, kernel, struct, names, y, fields, lags)


def _steps(shape: Shape, written: Shape) -> list[int]:
    """Return how far apart an operand's neighbours are along each axis; 0 where it is repeated."""
    return [
        0 if size != out else prod(shape[i + 1 :]) for i, (size, out) in enumerate(zip(shape, written, strict=True))
    ]
