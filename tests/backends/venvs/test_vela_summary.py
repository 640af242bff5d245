from pathlib import Path

import pytest

from automcu_ray.core.errors import ToolchainError
from backends.venvs.vela import operator_notes, read_summaries

REAL = Path(__file__).parents[4] / "shared" / "data" / "reports" / "vela" / "vela_summaries.csv"
ROW = {
    "network": "net",
    "accelerator_configuration": "Ethos_U55_128",
    "system_config": "Ethos_U55_High_End_Embedded",
    "memory_mode": "Shared_Sram",
    "core_clock": "500000000.0",
    "inference_time": "1.0498e-05",  # 5249 / 500 MHz
    "sram_memory_used": "3.015625",
    "dram_memory_used": "0.0",
    "on_chip_flash_memory_used": "0.0",
    "off_chip_flash_memory_used": "1.3125",
    "cycles_total": "5249",
}
ON_ACCELERATOR = """
CPU operators = 0 (0.0%)
NPU operators = 2 (100.0%)
   NPU: Conv2D = a (outputs [1, 12, 12, 8])
   NPU: FullyConnected = logits/onnx (outputs [1, 1, 1, 5])
"""
ON_BOTH = """
Warning (supported operators) operator: RESIZE_NEAREST_NEIGHBOR, ofm: '/up/Resize'
Reason: unsupported scale-factor=3
IF NOT (IFM H == IFM W == 1)

CPU operators = 1 (33.3%)
   CPU: Passthrough = /up/Resize (outputs [1, 24, 24, 4])
NPU operators = 2 (66.7%)
   NPU: Conv2D = a (outputs [1, 12, 12, 8])
   NPU: Conv2D = b (outputs [1, 12, 12, 8])
"""


def summary(**changes: str) -> str:
    row = {**ROW, **changes}
    return f"{','.join(row)}\n{','.join(row.values())}\n"


def test_nothing_on_the_accelerator_is_no_time() -> None:
    zero = dict.fromkeys(("cycles_total", "inference_time", "sram_memory_used", "off_chip_flash_memory_used"), "0.0")
    (found,) = read_summaries(summary(**zero))
    assert found.cycles is None and found.latency_ms is None
    assert "no cycles to estimate" in found.notes()[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"sram_memory_used": "-1.0"},
        {"sram_memory_used": "nan"},
        {"sram_memory_used": "inf"},
        {"sram_memory_used": ""},
        {"sram_memory_used": "3.0001"},  # no whole number of bytes
        {"core_clock": "0"},
        {"cycles_total": "524"},  # does not agree with the time
        {"inference_time": "nan"},
    ],
)
def test_a_figure_that_cannot_be_is_an_error(changes: dict[str, str]) -> None:
    with pytest.raises(ToolchainError, match="cannot be"):
        read_summaries(summary(**changes))


@pytest.mark.parametrize(
    "rubbish", ["9" * 5000, "9" * 200_000, "1e999", "-1e999"], ids=["5000", "200000", "inf", "-inf"]
)
@pytest.mark.parametrize("column", ["core_clock", "cycles_total", "sram_memory_used", "inference_time"])
def test_a_figure_that_no_number_holds_is_an_error(column: str, rubbish: str) -> None:
    with pytest.raises(ToolchainError):
        read_summaries(summary(**{column: rubbish}))


def test_a_summary_that_is_cut_anywhere_is_an_error() -> None:
    whole = summary().rstrip("\n")
    for end in range(len(whole)):
        with pytest.raises(ToolchainError):
            read_summaries(whole[:end])


@pytest.mark.parametrize("column", [name for name in ROW if name != "network"])
def test_a_missing_column_is_named(column: str) -> None:
    row = {name: value for name, value in ROW.items() if name != column}
    with pytest.raises(ToolchainError, match=f"no column '{column}'"):
        read_summaries(f"{','.join(row)}\n{','.join(row.values())}\n")


@pytest.mark.parametrize(
    "said",
    [
        "",
        "NPU operators = 2 (100%)\n",
        ON_ACCELERATOR.replace("= 0", f"= {'9' * 5000}"),
        ON_ACCELERATOR.replace("= 0", "= 1"),
        ON_BOTH.replace("CPU: Pass", "CPP: Pass"),
    ],
)
def test_operators_that_are_counted_but_not_named_are_an_error(said: str) -> None:
    with pytest.raises(ToolchainError, match="name the operators"):
        operator_notes(said)


def test_every_real_summary_is_read() -> None:
    if not REAL.exists():
        pytest.skip("needs the public summaries in ../shared/data/reports/vela")
    found = read_summaries(REAL.read_text())
    assert len(found) == 43
    first = found[0]
    assert (first.accelerator, first.memory_mode) == ("Ethos_U65_256", "Dedicated_Sram_384KB")
    assert (first.sram_bytes, first.dram_bytes) == (74480, 103520)  # 72.734375 and 101.09375 KB
    assert (first.cycles, first.latency_ms) == (152904, pytest.approx(0.152904))
    assert found[2].off_chip_flash_bytes == 76000  # 74.21875 KB
    floats = [one for one in found if one.network == "ad01_fp32"]
    assert len(floats) == 3 and all(one.cycles is None for one in floats)
