"""What int8 convolutions need beside their tensors, by hand."""

import pytest

from automcu_ray.networks.graph import Shape
from automcu_ray.sizing.scratch import scratch_bytes


@pytest.mark.parametrize(
    ("groups", "read", "written", "kernel", "stride", "wanted"),
    [
        (1, (16, 1, 1), (32, 1, 1), 1, 1, 0),  # a linear layer
        (1, (16, 8, 8), (32, 8, 8), 1, 1, 4 * 16 + 3),  # four windows of 16 values
        (2, (16, 8, 8), (32, 8, 8), 3, 1, 4 * 8 * 9 + 3),
        (16, (16, 8, 8), (16, 8, 8), 3, 1, 6 * 12 + 3),  # 4 output rows read 6, the last four outputs to column 7 + 3
        (16, (16, 9, 9), (16, 5, 5), 3, 2, 9 * 18 + 3),  # 3 * 2 + 3 rows, to column 7 * 2 + 3
        (16, (16, 2, 2), (16, 2, 2), 3, 1, 4 * 8 + 3),  # 2 output rows read 4; two columns beyond the image
        (1, (1, 8, 8), (16, 8, 8), 3, 1, 4 * 9 + 3),  # too many outputs a group for copied rows
    ],
)
def test_scratch_is_four_windows_or_a_few_rows(
    groups: int, read: Shape, written: Shape, kernel: int, stride: int, wanted: int
) -> None:
    pad = kernel // 2
    assert scratch_bytes(groups, read, written, (kernel, kernel), (stride, stride), (pad, pad)) == wanted
