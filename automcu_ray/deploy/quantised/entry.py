"""Between images and the first integers of a quantised file: tables, one for each channel, in place of arithmetic."""

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto

from automcu_ray.deploy.graph_editor import options_of
from automcu_ray.deploy.quantised.values import EVERY, Array, Entry, Grid, integers_on, outcomes
from automcu_ray.deploy.quantised.writer import Writer
from automcu_ray.deploy.tables import FUNCTIONS

_UNIT = np.float32(1 / 128)  # of our images
AS_THEY_ARE = Grid(_UNIT, 0)


def is_by_pixel(node: NodeProto, weights: Array | None, channels: int) -> bool:
    """Return whether a node works on each pixel of an image alone, channel by channel."""
    if node.op_type == "Conv":
        return weights is not None and weights.shape == (channels, 1, 1, 1)
    return node.op_type in FUNCTIONS or node.op_type == "BatchNormalization"


def turns(entry: Entry) -> list[NodeProto]:
    """Return what changes the order of the axes before images are rounded."""
    return [one for one in entry.nodes if one.op_type == "Transpose"]


def tables(
    entry: Entry, image: str, shape: Sequence[int], constants: Mapping[str, Array], grid: Grid
) -> list[Array] | None:
    """Return what a file makes of each int8 pixel, -128 first, channel by channel; None where places differ.

    Args:
        entry: the file's operators.
        image: the tensor that they begin with.
        shape: of an image: (channels, height, width).
        constants: that the operators read.
        grid: what the result is rounded to.
    """
    pixels = (EVERY.astype(np.float32) * _UNIT).reshape(-1, *[1] * len(shape))
    found: Array = np.ascontiguousarray(np.broadcast_to(pixels, (len(EVERY), *shape)))
    if entry.nodes:
        found = outcomes(entry.nodes, constants, {image: found}, entry.result)
    for one in reversed(turns(entry)):
        found = found.transpose(np.argsort(options_of(one)["perm"]))
    if found.shape != (len(EVERY), *shape):
        return None
    made = integers_on(grid, found).reshape(len(EVERY), shape[0], -1)
    return None if (made != made[..., :1]).any() else [made[:, at, 0] for at in range(shape[0])]


def looked_up_by_channel(to: Writer, image: str, found: Sequence[Array]) -> str:
    """Write the tables; return the tensor of their results, the images themselves where nothing is to be done."""
    if all(np.array_equal(table, found[0]) for table in found):
        return to.table(image, found[0], "pixels")
    parts = []
    for at, table in enumerate(found):
        place = to.constant(f"{image}_place{at}", np.array([at], np.int64))
        parts.append(to.table(to.add("Gather", [image, place], image, "pixels", axis=1), table, "pixels"))
    return to.add("Concat", parts, image, "pixels", axis=1)
