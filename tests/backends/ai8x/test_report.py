"""What ai8xize says: texts made here, and the outputs of real runs where they are at hand."""

from pathlib import Path

import numpy as np
import pytest

from automcu_ray.core.errors import ToolchainError
from backends.ai8x.report import MemoryUse, check_warnings, known_answer, memory_use, read_text, refusal

SUMMARY = """  RESOURCE USAGE
  Weight memory: 71,148 bytes out of 442,368 bytes total (16.1%)
  Bias memory:   10 bytes out of 2,048 bytes total (0.5%)
*/
"""
REPORTS = Path(__file__).parents[4] / "shared" / "data" / "reports" / "ai8xize"
WEIGHTS_AND_BIASES = {
    "mnist": (71_148, 10),
    "mnist_extrasmall": (2_504, 10),
    "cifar10_nas": (301_760, 842),
    "svhn_tinierssd": (335_520, 816),
}
REFUSED = {"err_no_overlap_svhn": "data_memory", "err_out_offset": "data_memory"}
BROKEN = ("err_missing_checkpoint", "err_no_sample", "err_wrong_arch", "err_cats_dogs_nofifo")


@pytest.fixture
def reports() -> Path:
    if not REPORTS.is_dir():
        pytest.skip("needs the outputs of real ai8xize runs in ../shared/data/reports/ai8xize")
    return REPORTS


def test_memory_is_read_from_the_summary() -> None:
    assert memory_use(SUMMARY) == MemoryUse(71_148, 442_368, 10, 2_048)


@pytest.mark.parametrize(
    "text",
    [
        "",
        SUMMARY.replace("Bias", "Blas"),
        SUMMARY.replace("71,148", "some"),
        SUMMARY.replace("71,148", "442,369"),
        SUMMARY[: SUMMARY.index("total (0.5%)")],
    ],
)
def test_rubbish_is_an_error_and_never_a_zero(text: str) -> None:
    with pytest.raises(ToolchainError):
        memory_use(text)


def test_a_file_that_is_missing_or_huge_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolchainError, match=r"should have written main\.c"):
        read_text(tmp_path / "main.c")
    (tmp_path / "main.c").write_text("x" * 100)
    monkeypatch.setattr("backends.ai8x.report.MAX_BYTES", 99)
    with pytest.raises(ToolchainError, match="at most 99 bytes"):
        read_text(tmp_path / "main.c")


def test_unquantised_weights_are_an_error_though_the_tool_ends_well() -> None:
    warning = "WARNING: All weights for `layer0.op.weight` are zero.\n"
    with pytest.raises(ToolchainError, match=r"not quantised: all of layer0\.op\.weight"):
        check_warnings(warning)
    check_warnings(warning, zero=["layer0.op.weight"])


@pytest.mark.parametrize(
    ("stderr", "resource", "where", "over"),
    [
        (
            "ERROR: Layer 1: HWC (4 channels/word) 8-bit 28x28 output (size 3136) with output offset 0x7f00 and "
            "expansion 1x exceeds data memory instance size of 32768.",
            "data_memory",
            "b",
            3136 + 0x7F00 - 32768,
        ),
        (
            "ERROR: Processor 0: Layer 1 output for CHW=0,2,5 is overwriting input at 0x0",
            "data_memory",
            "b",
            None,
        ),
        ("ERROR: \nLayer 0: Kernel memory exhausted at processor 0; offset: 708", "weight_memory", "a", None),
        ("ERROR: Layer 0: bias memory capacity exhausted - available groups: [0]", "bias_memory", "a", None),
        ("ERROR: This device supports up to 32 layers (found in layer sequence 32)", "layers", "", None),
        ("ERROR: Layer 7: Conv2d does not support stride other than 1", "operator", "", None),
    ],
)
def test_a_refusal_names_memory_layer_and_bytes(stderr: str, resource: str, where: str, over: int | None) -> None:
    found = refusal(f"WARNING: no linter\n{stderr}\n", ["a", "b"])
    assert (found.resource, found.where, found.over_bytes, found.rung) == (resource, where, over, "vendor tool")
    assert found.message.startswith("ai8xize: ") and "\n" not in found.message


@pytest.mark.parametrize("stderr", ["", "Traceback\nAssertionError\n", "ERROR: Sample data file x.npy does not exist!"])
def test_other_failures_say_nothing_about_the_network(stderr: str) -> None:
    with pytest.raises(ToolchainError, match="ai8xize failed"):
        refusal(stderr, [])


def test_known_answers_are_ordered_by_class() -> None:
    header = "#define SAMPLE_OUTPUT { 0x50400000, 0xffffffff, 0x00000004, 0xfffffd81, 0x00000002, 0x00000003, \\\n"
    header += "0x00000004, 0x50408000, 0xffffffff, 0x00000001, 0x80000000, 0x00000000 }"
    found = known_answer(header, 5)
    assert found.tolist() == [-639, 2, 3, 4, -(2**31)] and found.dtype == np.int64


def test_known_answers_of_two_passes_alternate_within_a_part_of_the_memory() -> None:
    # 72 classes: two passes of 36 processors; every part has four classes of the first pass, then four of the second
    blocks = []
    for part in range(9):
        values = [4 * part + lane for lane in range(4)] + [36 + 4 * part + lane for lane in range(4)]
        blocks += [0x50400000 + 0x8000 * part, 0xFFFFFFFF, 8, *values]
    header = ", ".join(f"0x{word:08x}" for word in [*blocks, 0])
    assert known_answer(header, 72).tolist() == list(range(72))


@pytest.mark.parametrize("words", [[], [1, 0xFF, 1, 7, 0], [1, 0xFFFFFFFF, 3, 7, 0], [1, 0xFFFFFFFF, 0xFFFFFFFF, 7]])
def test_known_answers_that_are_none_are_an_error(words: list[int]) -> None:
    with pytest.raises(ToolchainError, match=r"sampleoutput\.h should hold"):
        known_answer(", ".join(f"0x{word:08x}" for word in words), 1)


@pytest.mark.parametrize("name", WEIGHTS_AND_BIASES)
def test_summaries_of_real_runs_are_read(reports: Path, name: str) -> None:
    found = memory_use((reports / f"{name}.summary.txt").read_text())
    assert (found.weight_bytes, found.bias_bytes) == WEIGHTS_AND_BIASES[name]
    check_warnings((reports / f"{name}.stderr.txt").read_text())


def test_every_real_run_is_read_or_refused_by_name(reports: Path) -> None:
    for path in sorted(reports.glob("*.rc")):
        stderr = path.with_suffix(".stderr.txt").read_text()
        if path.read_text().strip() == "0" and path.stem != "err_unquantized":
            summary = path.with_suffix(".summary.txt")
            assert not summary.exists() or memory_use(summary.read_text()).weight_bytes > 0, path
            check_warnings(stderr)
        elif path.stem in REFUSED:
            assert refusal(stderr, []).resource == REFUSED[path.stem]
        else:
            with pytest.raises(ToolchainError):
                check_warnings(stderr)
                refusal(stderr, [])
