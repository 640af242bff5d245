"""A digest of source files: a change in what decides a verdict must make old verdicts worthless."""

import functools
import hashlib
import inspect
from pathlib import Path
from types import ModuleType

from automcu_ray import (
    blocks,
    cell,
    cell_network,
    equivalents,
    export,
    feasibility,
    footprint,
    graph,
    liveness,
    network,
    onnx_graph,
    remedy,
    tracing,
)
from backends import actor, base, programs

SHARED = (
    blocks,
    cell,
    cell_network,
    equivalents,
    export,
    feasibility,
    footprint,
    graph,
    liveness,
    network,
    onnx_graph,
    remedy,
    tracing,
    actor,
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
