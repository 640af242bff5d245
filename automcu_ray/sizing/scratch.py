"""The memory that an int8 convolution of c_qemu needs beside its tensors, at least: on the core that needs least.

Its kernels copy one window, or the rows that one output row of a depthwise convolution reads. Where more costs nothing,
since the arena has to be larger elsewhere, they take more and are faster (`backends/c_qemu/kernels/weighted.py`).
"""

from automcu_ray.networks.graph import Shape

ALIGNMENT = 4  # of scratch, in bytes; the planner knows none, so that each has this less one in addition
_STRIP = 4  # output rows that a depthwise convolution computes from one copy of its input's rows, where there is room
_AS_ONE_BYTES = 512  # of copied rows, where short ones are taken as one


def is_depthwise(groups: int, read: Shape, written: Shape) -> bool:
    """Whether rows are copied: one input channel a group, and too few outputs for packing whole windows to pay."""
    return groups == read[0] and written[0] <= 2 * groups


def row_values(read: Shape, written: Shape, stride: int, pad: int, reach: int) -> int:
    """Return the values of a copied row: padding included, and what the last four outputs read, all of them or not."""
    last = 4 * -(-written[2] // 4) - 1
    values = max(pad + read[2], last * stride + 2 * -(-(reach + 1) // 2))
    return values + values % 2


def rows_as_one(width: int) -> bool:
    """Return whether Helium takes output rows of a depthwise convolution as one: each would leave lanes over."""
    return width < 16 and width % 8 in (1, 2, 3, 5, 6)


def strip_rows(height: int, row_step: int, stride: int, reach: int, *, as_one: bool) -> int:
    """Return how many output rows of a depthwise convolution are computed from one copy, where there is room."""
    most = (_AS_ONE_BYTES // row_step - reach - 1) // stride + 1 if as_one else _STRIP
    return max(1, min(most, height))


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


def reads_apart(
    read: Shape, written: Shape, kernel: tuple[int, int], stride: int, pad: int, dilation: tuple[int, int] = (1, 1)
) -> bool:
    """Whether cores with DSP read the rows of a depthwise convolution as they lie, at every second column.

    Windows are three by three, whole blocks of four outputs fill a row, and at most one value of padding is before it.
    """
    fits = written[2] % 4 == 0 and 0 <= pad <= 1 and 2 * written[2] - pad + 1 <= read[2]
    return kernel == (3, 3) and dilation == (1, 1) and stride == 2 and fits


def ring_words(kernel: int, stride: int, dilation: int = 1) -> int:
    """Return the words that hold one row of taps on cores with DSP, two in each; five taps lie twice."""
    return 4 if kernel == 5 and dilation == stride == 1 else -(-((kernel - 1) * dilation + 1) // 2)


def dsp_depthwise_bytes(
    groups: int,
    read: Shape,
    written: Shape,
    kernel: tuple[int, int],
    stride: int,
    pad: int,
    dilation: tuple[int, int] = (1, 1),
) -> int:
    """Return what a depthwise convolution takes on cores with DSP; arguments as for `scratch_bytes`.

    Never less than that, which is a bound for all cores.
    """
    if reads_apart(read, written, kernel, stride, pad, dilation):  # taps in six words, a row of padding
        least = scratch_bytes(groups, read, written, kernel, stride, pad, dilation)
        return max(24 + read[2] + ALIGNMENT - 1, least)
    down, across = ((size - 1) * gap for size, gap in zip(kernel, dilation, strict=True))
    taps = written[0] // groups * kernel[0] * ring_words(kernel[1], stride, dilation[1])
    return 4 * taps + 2 * (down + 1) * row_values(read, written, stride, pad, across) + ALIGNMENT - 1
