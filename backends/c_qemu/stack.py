"""How much stack net() can use at most: its deepest calls, by GCC's own call graph (-fcallgraph-info=su)."""

import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter

from automcu_ray.core.errors import ToolchainError

HARNESS_BYTES = 256  # main's own frame, at most 128, and an interrupt's: 112 with the FPU's registers, its handler 8
STREAM_BYTES = 128  # the frame of the harness that feeds a stream
GUARD_BYTES = 256  # beyond the bound: what a run finds changed there is an overflow, even where it skipped some words
# Frames of the C, maths and compiler's library are not in the call graph. These allowances are above what newlib-nano
# of GCC 12.2 was seen to need on any core, by disassembly: 168 (log1p in double, M0), 552 (sinf and its kind, M0).
SMALL_BYTES, TRIGONOMETRIC_BYTES = 256, 640
UNKNOWN_BYTES = 1024  # whatever has not been looked at; sin in double needs 832 (M3)
MOST_DIGITS = 9  # of a frame's bytes
_SMALL = re.compile(
    r"__(aeabi|gnu)_\w+|__\w+i2|mem(cpy|move|set|cmp)|(exp|log|log1p|tanh|sqrt|fma|nearbyint|rint|floor|ceil)f?"
    r"|(exp2|expm1|pow|erf|fmod|ldexp|round|trunc|lrint|lround|fmax|fmin|fabs)f"
)
_TRIGONOMETRIC = re.compile(r"(sin|cos|tan)f")
_FUNCTION = re.compile(r'^node: \{ title: "([^"]+)" label: "[^"]*\\n(\d+) bytes \(([\w,]+)\)', re.MULTILINE)
_CALL = re.compile(r'^edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', re.MULTILINE)
_INDIRECT = "__indirect_call"


def bound_bytes(callgraph: str) -> int:
    """Return the bytes of stack that suffice for one inference, interrupt and harness included; a multiple of 8.

    Frames of net(), of a stream's functions where there is one, and of what they call are exact. What a library uses is
    an allowance by function: above the largest need seen for those that are known, generous but no proof for any other.

    Raises:
        ToolchainError: no net() in the graph, or a depth that nobody can bound: recursion, arrays of variable size,
            calls through pointers.
    """
    frames = {}
    for name, size, kind in _FUNCTION.findall(callgraph):
        if kind == "dynamic":
            raise ToolchainError(f"the stack of {name} has no bound: it grows at run time.")
        if len(size) > MOST_DIGITS:
            raise ToolchainError(f"GCC's call graph should give {name[:80]} a frame of bytes, found {size[:20]}...")
        frames[name] = int(size)
    roots = [name for name in ("net", "stream_feed", "stream_result") if name in frames]
    if "net" not in roots:
        raise ToolchainError(f"GCC's call graph should hold net, found {sorted(frames)[:5]}.")
    calls = defaultdict(set)
    for caller, callee in _CALL.findall(callgraph):
        if callee == _INDIRECT:
            raise ToolchainError(f"the stack of {caller} has no bound: it calls through a pointer.")
        calls[caller].add(callee)
    depth: dict[str, int] = {}
    try:
        for name in TopologicalSorter({**dict.fromkeys(frames, ()), **calls}).static_order():
            frame = frames[name] if name in frames else library_bytes(name)
            depth[name] = frame + max((depth[callee] for callee in calls[name]), default=0)
    except CycleError as error:
        raise ToolchainError(f"the stack of {error.args[1][0]} has no bound: it calls itself.") from error
    most = max(depth[name] + (0 if name == "net" else STREAM_BYTES) for name in roots)
    return -(-(most + HARNESS_BYTES) // 8) * 8


def library_bytes(function: str) -> int:
    """Return the allowance, in bytes, for a function that was not compiled here, and for all that it calls."""
    if _SMALL.fullmatch(function):
        return SMALL_BYTES
    return TRIGONOMETRIC_BYTES if _TRIGONOMETRIC.fullmatch(function) else UNKNOWN_BYTES
