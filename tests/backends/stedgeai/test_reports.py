"""ST's reports, of every version at hand: figures equal to the index, or an error; never a zero in between."""

import contextlib
import csv
import json
import re
from pathlib import Path
from random import Random

import pytest

from automcu_ray.core.errors import ToolchainError
from backends.stedgeai.json_reports import read_json
from backends.stedgeai.report import Buffer, Runtime, VendorReport
from backends.stedgeai.text_reports import read_text
from tests.backends.stedgeai.fake_stedgeai import c_info, text_report

PUBLIC = Path(__file__).parents[4] / "shared" / "data" / "reports" / "stedgeai"
FILES = sorted(path.name for path in PUBLIC.glob("*.*") if path.suffix in (".txt", ".json")) or ["none"]
TEXTS = [name for name in FILES if name.endswith(".txt")] or ["none"]
REFUSED = {  # with the reason
    "HongjieTan+STM32_AI-h743__X-CUBE-AI__App__network_report.json": "Invalid JSON",  # a merge conflict inside
}
CORE_2 = text_report("analyze", "net", 21_504, 6_144, 345_678, [("stem_weights", 640, "weights/weights")])
CUBE_5 = """Neural Network Tools for STM32 v1.4.0 (AI tools v5.2.0)
Created date       : 2020-01-02 03:04:05
model_name         : tiny
input              : input_0 [144 items, 576 B, ai_float, FLOAT32, (12, 12, 1)]
macc               : 12,345
weights (ro)       : 4,816 B (4.70 KiB)
activations (rw)   : 1,408 B (1.38 KiB)
ram (total)        : 2,024 B (1.98 KiB) = 1,408 + 576 + 40

id  layer (type)               output shape      param #     connected to             macc           rom
0   input_0 (Input)            (12, 12, 1)
    conv2d_1 (Conv2D)          (12, 12, 4)       40          input_0                  5,760          160
1   pool_1 (Pool)              (6, 6, 4)                     conv2d_1
tiny p=1204(4.70 KBytes) macc=12345 rom=4.70 KBytes ram=1.38 KiB io_ram=0.60 KiB

Complexity per-layer - macc=12,345 rom=4,816
------------------------------------------------------------------------------------------------------------------------
"""
NPU = """ST Edge AI Core v3.0.0-55555 0123abcd
Created date          : 2026-01-02 03:04:05

Model name - tiny_quant
0      input_1 ()                  [b:1,h:64,w:64,c:3]
1      conv_1 (CONV_2D)            [b:1,h:32,w:32,c:8]    224/256         221,192             input_1

Memory usage information  (input/output buffers are included in activations)
------------------------------------------------------------------------------------
\tnpuRAM4    [0x34270000 - 0x342E0000]:     64.000 kB /    448.000 kB  ( 14.29 % used) -- weights:          0  B (  0.00 % used)  activations:     64.000 kB ( 14.29 % used)
\tnpuRAM5    [0x342E0000 - 0x34350000]:     32.000 kB /    448.000 kB  (  7.14 % used) -- weights:          0  B (  0.00 % used)  activations:     32.000 kB (  7.14 % used)
\toctoFlash  [0x71000000 - 0x78000000]:     10.500 kB /    112.000 MB  (  0.01 % used) -- weights:     10.500 kB (  0.01 % used)  activations:          0  B (  0.00 % used)
---
Total:                                           106.500 kB                                  -- weights:     10.500 kB                  activations:     96.000 kB
====================================================================================
Epochs details
------------------------------------------------------------------------------------
Total number of epochs: 2 of which 1 implemented in software
---
epoch 1       HW
epoch 2      -SW-   (      Softmax       )
====================================================================================
"""  # noqa: E501
REPORT_JSON = {
    "cli_version_str": "1.7.0",
    "model_name": "tiny",
    "rom_n_macc": 900,
    "rom_size": 300,
    "ram_size": [128, 128],
    "ram_io_size": [64, 10],
    "_allocate_inputs": 4,
    "_allocate_outputs": 0,
    "layers": [{"type": "Input", "extras": {"rom_size": 100}}, {"type": "Conv2D", "extras": {"rom_size": 200}}],
}


def read(text: str) -> VendorReport:
    return read_json(text) if text.lstrip().startswith(("{", "<")) else read_text(text)


def public(name: str) -> str:
    if name == "none":
        pytest.skip("needs the public reports in ../shared/data/reports/stedgeai")
    return (PUBLIC / name).read_bytes().decode(errors="replace")


def sizes(report: VendorReport) -> tuple[object, ...]:
    found = (report.macs, report.weights_bytes, report.activations_bytes, report.input_bytes, report.output_bytes)
    return (*found, report.runtime)


def row(name: str) -> dict[str, str]:
    with (PUBLIC / "index.csv").open() as file:
        return next(row for row in csv.DictReader(file) if row["file"] == name)


@pytest.mark.parametrize("name", FILES)
def test_a_public_report_has_the_figures_of_the_index(name: str) -> None:
    text = public(name)
    if name in REFUSED:
        with pytest.raises(ToolchainError, match=REFUSED[name]):
            read(text)
        return
    found, wanted = read(text), row(name)
    figures = {"weights": found.weights_bytes, "activations": found.activations_bytes, "ram_total": found.ram_bytes}
    if "c_info" not in name:  # where the index has the first node's; the sum is compared below
        figures["macc"] = found.macs
    stated = {key: int(re.sub(r"\D", "", re.match(r"[\d,]+", wanted[key])[0])) for key in figures if wanted[key]}  # type: ignore[index]
    assert stated.items() <= figures.items()
    assert found.weights_bytes > 0 and found.activations_bytes > 0 and found.operators
    assert wanted["kind"] == "json" or found.tool.startswith(wanted["tool_line"].split("  ")[0])


PAIRS = {  # JSON: text of the same network, by the beginnings of their names
    "aj-0+Tinyml-on-STM32-F407__.ai": "aj-0+Tinyml-on-STM32-F407__X",
    "laithalarmouti+CAN-Bus-IDS-STM32__.ai": "laithalarmouti+CAN-Bus-IDS-STM32__X",
    "hajimi-yzy+YOLO-Human-Detection-Project-Based-on-STM32H750__.ai": "hajimi-yzy+YOLO",
    "Lotfi-kh+PID_adaptive_gain__export__stm32_c_code_12d_c860k__network_c": "Lotfi-kh+PID",
    "1000sAlex+F4_neuron__.ai": "1000sAlex+F4_neuron__X",
    "darkyfoxy+AI_on_STM32__.ai": "darkyfoxy+AI_on_STM32__X",
    "Kangzhezhe+STM32_Face_Recognition__.ai__network_1_mobilefacenet_int8": "Kangzhezhe+STM32_Face_Recognition__X",
}


def named(start: str, ending: str) -> str:
    return next((name for name in FILES if name.startswith(start) and name.endswith(ending)), "none")


@pytest.mark.parametrize(("json_name", "text_name"), PAIRS.items())
def test_text_and_json_of_one_network_agree(json_name: str, text_name: str) -> None:
    one, two = read(public(named(json_name, ".json"))), read(public(named(text_name, ".txt")))
    assert sizes(one)[:5] == sizes(two)[:5]
    if one.runtime and two.runtime:
        assert (one.runtime.flash_bytes, one.runtime.ram_bytes) == (two.runtime.flash_bytes, two.runtime.ram_bytes)


def spoilt(text: str, whole: VendorReport, what: str) -> None:
    """Check that a spoilt report gives the same figures, or none: at most the runtime may be missing."""
    try:
        found = read(text)
    except ToolchainError:
        return
    assert sizes(found)[:5] == sizes(whole)[:5], what
    assert found.runtime in (None, whole.runtime), what


@pytest.mark.thorough
@pytest.mark.parametrize("name", TEXTS)
def test_a_public_report_cut_anywhere_is_an_error_or_the_same_figures(name: str) -> None:
    text = public(name)
    whole, rng = read(text), Random(name)
    for at in sorted({0, 1, len(text) - 1, *(rng.randrange(len(text)) for _ in range(60))}):
        spoilt(text[:at], whole, f"cut at {at}")


@pytest.mark.thorough
@pytest.mark.parametrize("name", TEXTS)
def test_a_public_report_with_a_digit_changed_is_an_error_or_the_same_figures(name: str) -> None:
    text = public(name)
    whole, rng = read(text), Random(name)
    lines = text.splitlines(keepends=True)
    figures = re.compile(r"(?:macc|weights|activations|ram|Complexity|Total:| +RT|\t).*\d")
    told = [at for at, line in enumerate(lines) if figures.match(line)]
    for _ in range(60):
        at = rng.choice(told)
        digits = [place for place, letter in enumerate(lines[at]) if letter.isdigit()]
        place = rng.choice(digits)
        changed = lines[at][:place] + str((int(lines[at][place]) + rng.randint(1, 9)) % 10) + lines[at][place + 1 :]
        spoilt("".join([*lines[:at], changed, *lines[at + 1 :]]), whole, changed)


def test_a_report_of_core_2() -> None:
    found = read_text(CORE_2)
    assert found == VendorReport(
        tool="ST Edge AI Core v2.2.0-77777 0badc0de",
        model="net",
        weights_bytes=21_504,
        activations_bytes=6_144,
        input_bytes=0,
        output_bytes=0,
        macs=345_678,
        # network.o 700 + 900 + 1400, network_data.o 48 + 16 + 88, library 9000 + 16; the linker pads weights by 4
        runtime=Runtime(12_168, 1_608, code_bytes=3_152, total_flash_bytes=12_168 + 21_508),
        operators=("Conv2D", "Gemm"),
        buffers=(Buffer("stem_weights", 640, in_flash=True),),
    )
    assert found.ram_bytes == 6_144


def test_a_report_of_version_5_has_input_and_output_beside_the_activations() -> None:
    found = read_text(CUBE_5)
    assert sizes(found) == (12_345, 4_816, 1_408, 576, 40, None)
    assert (found.ram_bytes, found.io_bytes, found.operators) == (2_024, 616, ("Conv2D", "Pool"))


def test_a_report_of_the_npu_knows_its_memories_and_no_macc() -> None:
    assert sizes(read_text(NPU)) == (None, 10_752, 98_304, 0, 0, None)


def test_a_json_report_counts_only_what_lies_outside_the_activations() -> None:
    found = read_json(json.dumps(REPORT_JSON))
    assert sizes(found) == (900, 300, 128, 0, 10, None)
    assert (found.ram_bytes, found.operators) == (138, ("Conv2D",))


def test_c_info_gives_runtime_and_arrays() -> None:
    found = read_json(c_info("net", 300, 128, 900))
    assert sizes(found) == (900, 300, 128, 0, 0, Runtime(1, 0))
    assert found.buffers == (Buffer("stem_output_array", 10, in_flash=False),)


def test_c_info_without_a_compiler_has_all_but_the_runtime() -> None:
    text = c_info("net", 300, 128, 900, kernel_flash=None)
    assert '"kernel_flash": null' in text
    assert sizes(read_json(text)) == (900, 300, 128, 0, 0, None)


def test_c_info_of_core_4_says_type_of_a_node() -> None:
    text = c_info("net", 300, 128, 900)
    assert read_json(text.replace('"description": ', '"type": ')) == read_json(text)


@pytest.mark.parametrize("text", [CORE_2, CUBE_5, NPU])
def test_a_report_cut_anywhere_is_an_error_or_the_same_figures(text: str) -> None:
    whole = read_text(text)
    for at in range(len(text)):
        spoilt(text[:at], whole, f"cut at {at}")
    with pytest.raises(ToolchainError):
        read_text(text[: len(text) // 2])


@pytest.mark.parametrize("text", [CORE_2, CUBE_5, NPU])
def test_lines_lost_or_swapped_are_an_error_or_the_same_figures(text: str) -> None:
    whole, lines = read_text(text), text.splitlines(keepends=True)
    for at in range(len(lines)):
        spoilt("".join(lines[:at] + lines[at + 1 :]), whole, f"without {lines[at]!r}")
        spoilt("".join([*lines[:at], *reversed(lines[at : at + 2]), *lines[at + 2 :]]), whole, f"swapped {lines[at]!r}")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("weights (ro)       :   21,504", "weights (ro)       :   21,540"),
        ("activations (rw)   :   6,144", "activations (rw)   :   0"),
        ("= 6,144 + 0 + 0", "= 6,144 + 8 + 0"),
        ("act=6,144", "act=6,141"),
        ("macc               :   345,678", "macc               :   345,687"),
        (" network.o                           700", " network.o                           707"),
        ("21,508        0        0", "21,999        0        0"),
        ("C-Arrays (1)", "C-Arrays (2)"),
    ],
)
def test_figures_that_contradict_each_other_are_an_error(before: str, after: str) -> None:
    assert before in CORE_2
    with pytest.raises(ToolchainError, match="cannot read the report of ST's tool"):
        read_text(CORE_2.replace(before, after))


@pytest.mark.parametrize("text", [CORE_2, CUBE_5, NPU])
@pytest.mark.parametrize("rubbish", ["9" * 5000, "1.2.3", "-5", "1e9", "nan", "\0", "\u0665"])
def test_rubbish_in_the_place_of_a_number_is_an_error_or_the_same_figures(text: str, rubbish: str) -> None:
    whole = read_text(text)
    for found in re.finditer(r"\d[\d,.]*", text):
        spoilt(text[: found.start()] + rubbish + text[found.end() :], whole, f"{rubbish[:9]} for {found[0]}")


@pytest.mark.parametrize(
    "text",
    ["", "\n", "Memory region  Used\nRAM: 12 B", CORE_2.replace("ST Edge AI Core", "Edge Studio"), "macc : 0\n" * 9],
)
def test_a_foreign_text_is_an_error(text: str) -> None:
    with pytest.raises(ToolchainError, match="first line should name the tool"):
        read_text(text)


@pytest.mark.parametrize(
    "change",
    [{"rom_size": 301}, {"ram_size": [128, 256]}, {"ram_size": -1}, {"rom_n_macc": "many"}, {"layers": []}],
)
def test_json_that_is_cut_or_contradicts_itself_is_an_error(change: dict[str, object]) -> None:
    text = json.dumps(REPORT_JSON)
    for at in range(0, len(text), 7):
        with pytest.raises(ToolchainError):
            read_json(text[:at])
    with pytest.raises(ToolchainError, match=f"{next(iter(change))} should|{next(iter(change))}"):
        read_json(json.dumps({**REPORT_JSON, **change}))
    with pytest.raises(ToolchainError):
        read_json(json.dumps({"hello": 1}))


def test_c_info_that_contradicts_its_pools_is_an_error() -> None:
    text = c_info("net", 300, 128, 900)
    for figure in ('"weights": 300', '"activations": 128'):
        with pytest.raises(ToolchainError, match="should be one number"):
            read_json(text.replace(figure, f"{figure}1"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "flood",
    [
        " x" + " " * (1 << 20),
        "\n" * (1 << 20),
        " x" + " 1" * (1 << 19),
        "C-Arrays (1)\n" * (1 << 16),
        "\tx [" + "-- weights: 1 B " * (1 << 16),
    ],
    ids=["blanks", "blank lines", "numbers", "tables", "regions"],
)
@pytest.mark.parametrize("report", [CORE_2, NPU], ids=["Cortex-M", "NPU"])
def test_a_flood_in_a_report_takes_no_time(report: str, flood: str) -> None:
    """What is said then does not matter here: patterns that try every blank anew would take hours."""
    for text in (f"{report}\n{flood}\n", report.replace(" Requested memory size", f"{flood}\n Requested memory size")):
        with contextlib.suppress(ToolchainError):
            read_text(text)
    inside = re.sub(r"( Requested memory size[^\n]*\n)", lambda found: found[1] + flood + "\n", report)
    with contextlib.suppress(ToolchainError):
        read_text(inside)
