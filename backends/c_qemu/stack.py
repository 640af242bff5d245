"""How much stack net() can use at most: its deepest calls, by GCC's own call graph (-fcallgraph-info=su)."""

import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter

from automcu_ray.errors import ToolchainError

HARNESS_BYTES = 256  # main's own frame, at most 120, and an interrupt's: 112 with the FPU's registers, its handler 8
LIBRARY_BYTES = 256  # any function of the C, maths or compiler's library: their frames are not in the call graph
_FUNCTION = re.compile(r'^node: \{ title: "([^"]+)" label: "[^"]*\\n(\d+) bytes \(([\w,]+)\)', re.MULTILINE)
_CALL = re.compile(r'^edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', re.MULTILINE)
_INDIRECT = "__indirect_call"


def bound_bytes(callgraph: str) -> int:
    """Return the bytes of stack that suffice for one inference, interrupt and harness included; a multiple of 8.

    Frames of net() and what it calls are exact. What a library uses is an allowance: the largest need seen is less.

    Raises:
        ToolchainError: no net() in the graph, or a depth that nobody can bound: recursion, arrays of variable size,
            calls through pointers.
    """
    frames = {}
    for name, size, kind in _FUNCTION.findall(callgraph):
        if kind == "dynamic":
            raise ToolchainError(f"the stack of {name} has no bound: it grows at run time.")
        frames[name] = int(size)
    if "net" not in frames:
        raise ToolchainError(f"GCC's call graph should hold net, found {sorted(frames)[:5]}.")
    calls = defaultdict(set)
    for caller, callee in _CALL.findall(callgraph):
        if callee == _INDIRECT:
            raise ToolchainError(f"the stack of {caller} has no bound: it calls through a pointer.")
        calls[caller].add(callee)
    depth: dict[str, int] = {}
    try:
        for name in TopologicalSorter({**dict.fromkeys(frames, ()), **calls}).static_order():
            depth[name] = frames.get(name, LIBRARY_BYTES) + max((depth[callee] for callee in calls[name]), default=0)
    except CycleError as error:
        raise ToolchainError(f"the stack of {error.args[1][0]} has no bound: it calls itself.") from error
    return -(-(depth["net"] + HARNESS_BYTES) // 8) * 8
