"""Examples decoded in parallel threads, once: what takes seconds is kept on disk for all later runs."""

import contextlib
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import track

from automcu_ray.sizing.verdict_cache import cache_root
from trainables.datasets.base import Images

T = TypeVar("T")
KEEP_S = 2.0  # what was faster to make is not worth a file
_CHUNK = 64  # examples a thread takes at a time


def kept(key: object, make: Callable[[], Images]) -> Images:
    """Return `make()`, memory-mapped from the cache where an earlier run has made it; `key` is all that it depends on.

    A cache that cannot be written or read costs time and nothing else.
    """
    path = place(key, "npy")
    with contextlib.suppress(OSError, ValueError):  # none yet, or damaged
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    started_s = time.monotonic()
    made = make()
    if time.monotonic() - started_s > KEEP_S:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
                try:
                    np.save(file, made, allow_pickle=False)
                    Path(file.name).replace(path)
                finally:
                    Path(file.name).unlink(missing_ok=True)
    return made


def place(key: object, ending: str) -> Path:
    """Return the file of the cache for what `key` is all that it depends on."""
    return cache_root() / "datasets" / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.{ending}"


def fingerprint(path: Path) -> tuple[str, int, int]:
    """Return what changes when a file does: path, bytes, time of the last change (ns)."""
    status = path.stat()
    return str(path.resolve()), status.st_size, status.st_mtime_ns


def in_threads(items: Sequence[T], decode: Callable[[T], Any], what: str) -> Iterator[Any]:
    """Yield `decode(item)` of each item in order, by as many threads as there are cores; progress on a terminal.

    The first exception of `decode` ends it.
    """
    chunks = [items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK)]
    console = Console(stderr=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            work = pool.map(lambda chunk: [decode(item) for item in chunk], chunks)
            quiet = not sys.stderr.isatty()
            for done in track(work, what, len(chunks), console=console, transient=True, disable=quiet):
                yield from done
        finally:
            pool.shutdown(cancel_futures=True)
