"""What int8 convolutions need beside their tensors, by hand."""

import pytest

from automcu_ray.networks.graph import Shape
from automcu_ray.sizing.scratch import dsp_depthwise_bytes, scratch_bytes


@pytest.mark.parametrize(
    ("groups", "read", "written", "kernel", "stride", "wanted"),
    [
        (1, (16, 1, 1), (32, 1, 1), 1, 1, 0),  # a linear layer
        (1, (16, 8, 8), (32, 8, 8), 1, 1, 16 + 3),  # a window of 16 values
        (2, (16, 8, 8), (32, 8, 8), 3, 1, 8 * 9 + 3),
        (16, (16, 8, 8), (16, 8, 8), 3, 1, 3 * 12 + 3),  # the last four outputs read to column 7 + 3
        (16, (16, 9, 9), (16, 5, 5), 3, 2, 3 * 18 + 3),  # to column 7 * 2 + 3
        (16, (16, 2, 2), (16, 2, 2), 3, 1, 3 * 8 + 3),  # four columns beyond the image
        (1, (1, 8, 8), (16, 8, 8), 3, 1, 9 + 3),  # too many outputs a group for copied rows
    ],
)
def test_scratch_is_a_window_or_its_rows(
    groups: int, read: Shape, written: Shape, kernel: int, stride: int, wanted: int
) -> None:
    pad = kernel // 2
    assert scratch_bytes(groups, read, written, (kernel, kernel), stride, pad) == wanted


@pytest.mark.parametrize(
    ("width", "kernel", "stride", "wanted"),
    [
        (8, 3, 1, 4 * 3 * 2 + 2 * 3 * 12 + 3),  # two words of taps a row, three rows of 16 bits
        (8, 5, 1, 4 * 5 * 4 + 2 * 5 * 14 + 3),
        (8, 3, 2, 24 + 8 + 3),  # taps and a row of padding
        (96, 3, 2, 3 * 98 + 3),  # would take less, but no core is said to
        (12, 3, 2, 4 * 3 * 2 + 2 * 3 * 18 + 3),  # six outputs: copied
    ],
)
def test_cores_with_dsp_hold_rows_of_16_bits_or_none(width: int, kernel: int, stride: int, wanted: int) -> None:
    read, written = (16, width, width), (16, width // stride, width // stride)
    assert dsp_depthwise_bytes(16, read, written, (kernel, kernel), stride, kernel // 2) == wanted
