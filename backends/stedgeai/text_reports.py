"""ST's text reports, X-CUBE-AI 5.0 to ST Edge AI Core 3.0, Cortex-M and Neural-ART (STM32N6), as figures.

Every figure stands in two places at least, and a report ends with a line that repeats them: one that is cut off,
edited or foreign is an error. Tables that some versions lack (C arrays, memory by section) are left out where the
version lacks them; where a table begins, it must be whole.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from backends.stedgeai.report import Buffer, Runtime, VendorReport, agreed, unreadable

_N = r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})"  # 1,576 or 1576, of a size that is one
_TOOL = re.compile(r"(?:Neural Network Tools for STM32|ST ?Edge ?AI Core v)[^\r\n]*")
_MODEL = re.compile(r"^(?:model_name\s*: |Model name - )\s*(\S+)", re.MULTILINE)
_MACC = re.compile(rf"^macc\s*:\s*{_N}\s", re.MULTILINE)
_WEIGHTS = re.compile(rf"^weights (?:\(ro\)|size)\s*:\s*{_N}\s", re.MULTILINE)
_ACTIVATIONS = re.compile(rf"^activations (?:\(rw\)|size)\s*:\s*{_N}\s", re.MULTILINE)
_RAM = re.compile(rf"^ram \(total\)\s*:\s*{_N}(?: B)? \([^)\n]*\) = {_N} \+ {_N} \+ {_N}\s", re.MULTILINE)
_END_5 = re.compile(rf"^Complexity per-layer - macc={_N} rom={_N}[ \r]*\n", re.MULTILINE)
_END = re.compile(rf"^(?:Complexity.* - )?macc={_N} weights={_N} act={_N} ram_io={_N}[ \r]*\n", re.MULTILINE)
_LAYER = re.compile(r"^(?:\d+)? +\S+ \(([A-Z]\w*)(?:, ?[\w ]*)?\) ", re.MULTILINE)
_ARRAYS = re.compile(r"^C-Arrays \((\d{1,9})\)", re.MULTILINE)
_ARRAY = re.compile(r"^\d+ +(\S+) +\d+/(\d{1,15}) +(weights|activations|user)\b", re.MULTILINE)
_SECTIONS = re.compile(r"^ Requested memory size .*", re.MULTILINE | re.DOTALL)
_SUMMARY = re.compile(rf"^  (RT total|TOTAL) +{_N} +(?:[\d.]+% +)?{_N} +(?:[\d.]+% *)?\r?\n", re.MULTILINE)
_NO_OPERATORS = ("Input", "Placeholder")
_SIZE = r"(\d{1,9}(?:\.\d{1,3})?) +(B|kB|MB)\b"
_NPU_TOTAL = re.compile(rf"^Total: +{_SIZE} +-- weights: +{_SIZE} +activations: +{_SIZE}", re.MULTILINE)
_NPU_REGION = re.compile(rf"^\t\w+ +\[.{{,300}}-- weights: +{_SIZE} .{{,300}}activations: +{_SIZE} ", re.MULTILINE)
_NPU_EPOCHS = re.compile(r"^Total number of epochs:? +(\d{1,9})\b", re.MULTILINE)
_NPU_EPOCH = re.compile(r"^(?:\| )?epoch[ _]\d+\s+(?:\|\s+)?-?(?:HW|SW|EC|HYB\w*)", re.MULTILINE)
_UNIT = {"B": 1, "kB": 1 << 10, "MB": 1 << 20}
_NPU_ROUNDING = 0.5e-3  # half of the last digit that is printed
_SECTION_SUMS = ("TOTAL", "RT total", "weights", "activations", "io")
_PADDING_BYTES = 64  # what a linker adds to the weights: 4 to 15 bytes seen


def read_text(text: str) -> VendorReport:
    """Return the figures of a text report (`network_analyze_report.txt`, `network_generate_report.txt`).

    Raises:
        ToolchainError: cut off, of another tool or layout, or in contradiction with itself.
    """
    tool, model = _TOOL.match(text), _MODEL.search(text)
    if tool is None or model is None:
        raise unreadable(f"its first line should name the tool and a later one the model, found {text[:80]!r}")
    figures = _npu(text) if "\nMemory usage information" in text else _cortex_m(text)
    kinds = tuple(sorted({kind for kind in _LAYER.findall(text) if kind not in _NO_OPERATORS}))
    return replace(figures, tool=tool[0].strip(), model=model[1], operators=kinds, runtime=_runtime(text, figures))


def _cortex_m(text: str) -> VendorReport:
    ram = _RAM.search(text)
    if ram is None:
        raise unreadable("no line 'ram (total)' with its three parts: cut off, or a layout that is not supported")
    total, in_ram, entry, result = _numbers(ram)
    end = _END.search(text) or _END_5.search(text)
    if end is None:
        raise unreadable("the line that repeats its figures is missing: cut off, or a layout that is not supported")
    numbers = [[number] for number in _numbers(end)]  # versions 5 repeat two figures, later ones four
    repeated = dict(zip(("macc", "weights", "activations", "io"), [*numbers, [], []], strict=False))
    agreed("ram (total)", [total, in_ram + entry + result])
    agreed("input and output", [entry + result, *repeated["io"]])
    return VendorReport(
        tool="",
        model="",
        macs=agreed("macc", [*repeated["macc"], *_stated(_MACC, text)]),
        weights_bytes=agreed("weights", [*repeated["weights"], *_stated(_WEIGHTS, text)]),
        activations_bytes=agreed("activations", [in_ram, *repeated["activations"], *_stated(_ACTIVATIONS, text)]),
        input_bytes=entry,
        output_bytes=result,
        buffers=_buffers(text),
    )


def _npu(text: str) -> VendorReport:
    """Return the figures of a network compiled for Neural-ART; input and output are inside the activations there.

    Sizes are printed to a thousandth of a kB or MB, and are as exact as that.
    """
    total, epochs = _NPU_TOTAL.search(text), _NPU_EPOCHS.search(text)
    if total is None or epochs is None:
        raise unreadable("no total of the NPU's memory or of its epochs: cut off, or a layout that is not supported")
    agreed("epochs", [int(epochs[1]), len(_NPU_EPOCH.findall(text))])
    regions = _NPU_REGION.findall(text)
    for column, what in ((2, "weights"), (4, "activations")):
        printed = [total.groups()[column : column + 2], *(row[column - 2 : column] for row in regions)]
        stated, *found = (_bytes(*size) for size in printed)
        several = sum(size > 0 for size in found) > 1  # the size of a single region is printed twice, alike
        rounding = sum(_NPU_ROUNDING * _UNIT[unit] for _, unit in printed if unit != "B") * several
        if abs(sum(found) - stated) > rounding:
            raise unreadable(f"{what} of the NPU's regions should add up to {stated:.0f}, found {sum(found):.0f}")
    weights, activations = (round(_bytes(*total.groups()[at : at + 2])) for at in (2, 4))
    return VendorReport("", "", weights, activations, input_bytes=0, output_bytes=0)


def _runtime(text: str, figures: VendorReport) -> Runtime | None:
    """Return what the memory by section says, checked against its own sums; None where there is none."""
    table = _SECTIONS.search(text)
    if table is None:
        return None
    rows = {}  # a name and four sizes; split by words, for a pattern would try every blank anew
    for words in (line.split() for line in table[0].split("\n") if line[:1] == " " != line[1:2]):
        name, sizes = " ".join(words[:-4]).strip("*"), words[-4:]
        if name and all(re.fullmatch(_N, size) for size in sizes):
            rows[name] = [_number(size) for size in sizes]
    sums = {name: (_number(flash), _number(ram)) for name, flash, ram in _SUMMARY.findall(table[0])}
    try:
        total, runtime, stored, live, io = (rows.pop(name) for name in _SECTION_SUMS)
        runtime_sum, total_sum = sums["RT total"], sums["TOTAL"]
    except KeyError as missing:
        raise unreadable(f"memory by section lacks {missing}: cut off") from missing
    _same("runtime", runtime, [sum(column) for column in zip(*rows.values(), strict=True)])
    _same("TOTAL", total, [sum(column) for column in zip(runtime, stored, live, io, strict=True)])
    _same("RT total", runtime_sum, (sum(runtime[:3]), sum(runtime[2:])))
    _same("TOTAL of Flash and RAM", total_sum, (sum(total[:3]), sum(total[2:])))
    _same("activations and io", (sum(live), sum(io)), (figures.activations_bytes, figures.io_bytes))
    if not 0 <= sum(stored) - figures.weights_bytes <= _PADDING_BYTES:
        raise unreadable(f"linked weights should be {figures.weights_bytes} bytes and padding, found {sum(stored)}")
    code = sum(sum(row[:3]) for name, row in rows.items() if name.endswith(".o"))
    return Runtime(*runtime_sum, code_bytes=code, total_flash_bytes=total_sum[0])


def _buffers(text: str) -> tuple[Buffer, ...]:
    """Return the arrays of the generated C; () where the version lists none."""
    table = _ARRAYS.search(text)
    end = text.find("\nC-Layers", table.end()) if table else -1
    if table is None or end < 0:
        return ()
    rows = _ARRAY.findall(text, table.end(), end)
    agreed("C-Arrays", [int(table[1]), len(rows)])
    return tuple(Buffer(name, int(size), in_flash=domain == "weights") for name, size, domain in rows)


def _same(what: str, found: Sequence[int], expected: Sequence[int]) -> None:
    if list(found) != list(expected):
        raise unreadable(f"{what} should be {list(expected)} by the sum of its parts, found {list(found)}")


def _stated(pattern: re.Pattern[str], text: str) -> list[int]:
    return [_number(found) for found in pattern.findall(text)]


def _numbers(found: re.Match[str]) -> list[int]:
    return [_number(group) for group in found.groups()]


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _bytes(value: str, unit: str) -> float:
    return float(value) * _UNIT[unit]
