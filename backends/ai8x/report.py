"""What ai8xize says: memory in use and expected outputs from the code it generates, refusals from its messages."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import Rung, Violation
from backends.ai8x.limits import SHARING, passes, processors

MAX_BYTES = 1 << 25  # of a generated file; weights of 2 MB take 6 MB of text
_N = r"(\d[\d,]{0,17})"
_MEMORY = re.compile(rf"^ *(Weight|Bias) memory: +{_N} bytes out of {_N} bytes total", re.MULTILINE)
_UNQUANTISED = re.compile(r"WARNING: All weights for `(\S+)` are zero")
_ERROR = re.compile(r"^ERROR:\s*(.+)$", re.MULTILINE)
_LAYER = re.compile(r"\bLayer (\d{1,9})\b")
_SIZE = re.compile(r"\(size (\d{1,12})\) with \w+ offset 0x([0-9a-f]{1,8}) .*instance size of (\d{1,12})\b")
_REFUSALS = (
    ("data_memory", r"exceeds data memory instance size|is overwriting input|Overlapping input and output"),
    ("weight_memory", r"Kernel memory exhausted"),
    ("bias_memory", r"bias memory capacity"),
    ("layers", r"exceeds the device maximum|supports up to \d+ layers"),
    ("channels", r"exceeds the system maximum|exceeds the maximum of"),
    ("operator", r"not supported|does not support|Unsupported value"),
)


@dataclass(frozen=True)
class MemoryUse:
    """The RESOURCE USAGE of a generated network, in bytes."""

    weight_bytes: int
    weight_limit_bytes: int
    bias_bytes: int
    bias_limit_bytes: int


def read_text(path: Path) -> str:
    """Return a generated file's text.

    Raises:
        ToolchainError: it is not there, or too large to be one.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ToolchainError(f"{path.name} should have at most {MAX_BYTES} bytes, found {path.stat().st_size}.")
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ToolchainError(f"ai8xize should have written {path.name}: {error.strerror}.") from error


def memory_use(source: str) -> MemoryUse:
    """Return the memory that the summary in a generated main.c or cnn.h states.

    Raises:
        ToolchainError: no summary, or one that contradicts itself.
    """
    found = {name: (_number(used), _number(total)) for name, used, total in _MEMORY.findall(source)}
    if set(found) != {"Weight", "Bias"}:
        raise ToolchainError(
            "ai8xize should state weight and bias memory in a summary (RESOURCE USAGE): there is none."
        )
    if any(not 0 <= used <= total for used, total in found.values()):
        raise ToolchainError(f"ai8xize states more memory in use than there is: {found}.")
    return MemoryUse(*found["Weight"], *found["Bias"])


def check_warnings(stderr: str, zero: Collection[str] = ()) -> None:
    """Raise ToolchainError where ai8xize only warned: it takes float weights for integers, and ends well.

    `zero` are the checkpoint's keys of weights that are zero indeed.
    """
    if found := [key for key in _UNQUANTISED.findall(stderr) if key not in zero]:
        raise ToolchainError(f"ai8xize read weights that are not quantised: all of {found[0]} are zero as integers.")


def refusal(stderr: str, names: Sequence[str]) -> Violation:
    """Return why ai8xize refused a network.

    Args:
        stderr: what it printed.
        names: operators of the network, by hardware layer.

    Raises:
        ToolchainError: it failed for a reason that says nothing about the network's size or operators.
    """
    errors = _ERROR.findall(stderr)
    if not errors:
        lines = stderr.strip().splitlines()
        raise ToolchainError(f"ai8xize failed: {lines[-1][:300] if lines else 'silent'}")
    message = errors[0][:300]
    resource = next((name for name, pattern in _REFUSALS if re.search(pattern, message)), None)
    if resource is None:
        raise ToolchainError(f"ai8xize failed: {message}")
    layer, size = _LAYER.search(message), _SIZE.search(message)
    at = int(layer[1]) if layer else -1
    return Violation(
        rung=Rung.VENDOR,
        resource=resource,
        where=names[at] if 0 <= at < len(names) else "",
        found_bytes=int(size[1]) + int(size[2], 16) if size else None,
        limit_bytes=int(size[3]) if size else None,
        message=f"ai8xize: {message}",
    )


def known_answer(header: str, classes: int) -> npt.NDArray[np.int64]:
    """Return the outputs of 32 bits that a generated sampleoutput.h expects of the hardware, by class.

    The header lists blocks (address, mask, count, words); an output map of 1x1 has four channels to a part of the data
    memory, then the channels of the next pass.

    Raises:
        ToolchainError: not such a header.
    """
    words = [int(word, 16) for word in re.findall(r"\b0x([0-9a-fA-F]{8})\b", header)]
    values: dict[int, int] = {}
    at = 0
    while at + 3 <= len(words) and words[at]:
        address, mask, count = words[at : at + 3]
        block = words[at + 3 : at + 3 + count]
        if mask != 0xFFFFFFFF or len(block) != count:
            raise ToolchainError("sampleoutput.h should hold whole blocks of 32-bit outputs.")
        values |= {address + 4 * i: word for i, word in enumerate(block)}
        at += 3 + count
    if len(values) != classes:
        raise ToolchainError(f"sampleoutput.h should hold {classes} outputs, found {len(values)}.")
    ordered = np.array([values[address] for address in sorted(values)], dtype=np.uint32)
    result = np.empty(classes, dtype=np.int64)
    share = processors(classes)
    places = [(lane // SHARING, turn, lane % SHARING) for turn in range(passes(classes)) for lane in range(share)]
    by_address = [turn * share + part * SHARING + lane for part, turn, lane in sorted(places[:classes])]
    result[by_address] = ordered.view(np.int32)
    return result


def _number(text: str) -> int:
    return int(text.replace(",", ""))
