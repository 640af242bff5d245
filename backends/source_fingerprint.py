"""A digest of source files: a change in what decides a verdict must make old verdicts worthless."""

import functools
import hashlib
import inspect
from pathlib import Path
from types import ModuleType

from automcu_ray.core import feasibility
from automcu_ray.deploy import (
    equivalents,
    export,
    graph_editor,
    moving_equivalents,
    onnx_graph,
    onnx_rewrites,
    operator_cost,
    own_names,
    tables,
    torch_network,
    tracing,
    untrusted_onnx,
)
from automcu_ray.networks import cell, cell_network, graph, lowering
from automcu_ray.signals import front_end, spectrum
from automcu_ray.sizing import footprint, peak_memory, repair, scratch
from backends import base, programs, toolchain

SHARED = (
    lowering,
    cell,
    cell_network,
    onnx_rewrites,
    equivalents,
    moving_equivalents,
    graph_editor,
    tables,
    export,
    feasibility,
    footprint,
    graph,
    peak_memory,
    scratch,
    front_end,
    spectrum,
    torch_network,
    onnx_graph,
    operator_cost,
    own_names,
    untrusted_onnx,
    repair,
    tracing,
    toolchain,
    base,
    programs,
)
_SOURCES = (".py", ".c", ".h", ".ld", ".txt")


@functools.cache
def digest(*parts: Path | ModuleType) -> str:
    """Return eight hexadecimal digits that change with any of these files, modules, or sources in these folders."""
    found = hashlib.sha256()
    for part in parts:
        path = part if isinstance(part, Path) else Path(inspect.getfile(part))
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in _SOURCES and file.is_file():
                found.update(f"{file.name} {file.stat().st_size}\n".encode() + file.read_bytes())
    return found.hexdigest()[:8]
