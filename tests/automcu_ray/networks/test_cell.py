import pytest

from automcu_ray.networks.cell import CellSpec

TEXT = "|avg_pool_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|none~0|nor_conv_3x3~1|skip_connect~2|"


def test_a_cell_reads_back_as_the_benchmark_writes_it() -> None:
    cell = CellSpec.parse(TEXT)
    expected = ("avg_pool_3x3", "nor_conv_1x1", "skip_connect", "none", "nor_conv_3x3", "skip_connect")
    assert (cell.operations, str(cell)) == (expected, TEXT)
    assert CellSpec.model_validate(cell.compact()) == cell
    assert cell.hash() != CellSpec.parse(TEXT.replace("none", "skip_connect")).hash()


@pytest.mark.parametrize("text", ["", TEXT.replace("none", "magic"), TEXT[:-1], TEXT + TEXT, TEXT.replace("~1", "~0")])
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        CellSpec.parse(text)
