"""The memory that an int8 convolution of c_qemu needs beside its tensors, at least: on the core that needs least.

Its kernels copy one window, or the rows that one output row of a depthwise convolution reads. Where more costs nothing,
since the arena has to be larger elsewhere, they take more and are faster (`backends/c_qemu/kernels/weighted.py`).
"""

from automcu_ray.networks.graph import Shape

ALIGNMENT = 4  # of scratch, in bytes; the planner knows none, so that each has this less one in addition


def is_depthwise(groups: int, read: Shape, written: Shape) -> bool:
    """Whether rows are copied: one input channel a group, and too few outputs for packing whole windows to pay."""
    return groups == read[0] and written[0] <= 2 * groups


def row_values(read: Shape, written: Shape, stride: int, pad: int, reach: int) -> int:
    """Return the values of a copied row: padding included, and what the last four outputs read, all of them or not."""
    last = 4 * -(-written[2] // 4) - 1
    values = max(pad + read[2], last * stride + 2 * -(-(reach + 1) // 2))
    return values + values % 2


def scratch_bytes(
    groups: int,
    read: Shape,
    written: Shape,
    kernel: tuple[int, int],
    stride: int,
    pad: int,
    dilation: tuple[int, int] = (1, 1),
) -> int:
    """Return the bytes of one convolution; pairs are (height, width), shapes (channels, height, width).

    `stride` and `pad` are those of the columns.
    """
    depth = read[0] // groups * kernel[0] * kernel[1]
    if groups == 1 and depth == read[0] and read[1:] == written[1:] == (1, 1):
        return 0  # a linear layer
    down, across = ((size - 1) * gap for size, gap in zip(kernel, dilation, strict=True))
    if is_depthwise(groups, read, written):
        row = row_values(read, written, stride, pad, across)
        return (down + 1) * row + ALIGNMENT - 1
    return depth + ALIGNMENT - 1
