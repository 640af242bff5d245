"""The official files of NAS-Bench-201 and NATS-Bench: read once by their own package, kept as a table in Parquet."""

import bz2
import importlib
import math
import pickle
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from rich.console import Console
from rich.progress import track

from automcu_ray.core.atomic_write import write_whole
from automcu_ray.core.errors import ConfigError, ToolMissingError
from automcu_ray.networks.cell import CellSpec
from trainables.datasets.prepared import fingerprint, place

# Column: the benchmark's data set and split. CIFAR-10 has its own training set for validation, half of the usual one.
COLUMNS = {
    "cifar10_valid": ("cifar10-valid", "x-valid"),
    "cifar10_test": ("cifar10", "ori-test"),
    "cifar100_valid": ("cifar100", "x-valid"),
    "cifar100_test": ("cifar100", "x-test"),
    "imagenet16_valid": ("ImageNet16-120", "x-valid"),
    "imagenet16_test": ("ImageNet16-120", "x-test"),
}
_META, _ENDING = "meta", ".pickle.pbz2"
_SCALAR = np.float64(0).__reduce__()[0]  # what numpy's own pickles call to make a number
_PLAIN: dict[tuple[str, str], Any] = {  # all that a pickle of numbers, texts and dictionaries needs to name
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "defaultdict"): defaultdict,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "scalar"): _SCALAR,
    ("numpy._core.multiarray", "scalar"): _SCALAR,
}
_DTYPES = [type(np.dtype(name)) for name in ("float64", "float32", "int64", "int32", "bool")]


def official_table(path: Path, *, trust: bool) -> Path:
    """Return a Parquet file with `arch_str` and COLUMNS in percent: made now, in minutes, or kept from an earlier time.

    Accuracies are those after 200 epochs, the mean over the seeds that the benchmark trained a cell with.

    Args:
        path: NAS-Bench-201-*.pth, NATS-tss-*.pickle.pbz2, or the folder NATS-tss-*-simple.
        trust: these files are pickles, and a pickle is a program. Without trust nothing in one can run: it may hold
            numbers, texts, lists, dictionaries and (.pth) tensors. With trust it may do what its author likes.

    Raises:
        ConfigError: no such file, more in it than plain data (without trust), or not the benchmark.
        ToolMissingError: package nats_bench, which knows what the file means, is absent.
    """
    source = path / f"{_META}{_ENDING}" if path.is_dir() else path
    if not source.is_file():
        raise ConfigError(f"dataset.file: no {source}: give NAS-Bench-201-*.pth or a file or folder of NATS-tss-*.")
    kept = place(fingerprint(source), "parquet")
    if not kept.is_file():
        try:
            rows = list(_rows(path, trust))
        except pickle.UnpicklingError as error:
            raise ConfigError(
                f"dataset.file: {path} is no pickle of plain data ({str(error).splitlines()[0][:120]}), and any other "
                "pickle is a program. If you trust where it comes from: --set dataset.trust_file=true."
            ) from error
        except (KeyError, IndexError, AttributeError, TypeError, ValueError, EOFError, OSError) as error:
            what = f"{type(error).__name__}: {str(error)[:120]}"
            raise ConfigError(f"dataset.file: {path} is not NAS-Bench-201 as its package writes it: {what}.") from error
        buffer = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows), buffer)
        write_whole(kept, buffer.getvalue().to_pybytes())
    return kept


def _rows(path: Path, trust: bool) -> Iterator[dict[str, Any]]:
    """Yield the row of each cell, from the benchmark's results of 200 epochs; one cell at a time in memory."""
    try:
        make: Callable[[dict[str, Any]], Any] = importlib.import_module("nats_bench").ArchResults.create_from_state_dict
    except ImportError as error:
        raise ToolMissingError(
            "dataset.file needs the package nats_bench, which reads both of them: pip install 'automcu-ray[nasbench]'."
        ) from error
    if path.is_dir():
        names = _unpickled(path / f"{_META}{_ENDING}", trust)["meta_archs"]
        states = (_unpickled(path / f"{number:06d}{_ENDING}", trust)["200"] for number in range(len(names)))
    else:
        key, content = ("full", _loaded(path, trust)) if path.suffix == ".pth" else ("200", _unpickled(path, trust))
        names = content["meta_archs"]
        infos = content["arch2infos"]
        states = (infos.pop(number)[key] for number in range(len(names)))  # popped: there are gigabytes of weights
    about: Any = {"console": Console(stderr=True), "disable": not sys.stderr.isatty()}
    for name, state in track(zip(names, states, strict=True), f"reading {path.name}", len(names), **about):
        found = make(state)
        row: dict[str, Any] = {"arch_str": str(CellSpec.parse(name))}
        for column, (dataset, split) in COLUMNS.items():
            percent = float(found.get_metrics(dataset, split, is_random=False)["accuracy"])
            if not (math.isfinite(percent) and 0 <= percent <= 100):
                raise ValueError(f"{name}: {column} is {percent}")
            row[column] = percent
        yield row


def _loaded(path: Path, trust: bool) -> Any:
    named = [(made, f"{module}.{name}") for (module, name), made in _PLAIN.items()]
    with torch.serialization.safe_globals([*named, *_DTYPES]):
        try:
            return torch.load(path, map_location="cpu", weights_only=not trust)
        except RuntimeError as error:  # no archive of torch's
            raise ValueError(str(error)) from error


def _unpickled(path: Path, trust: bool) -> Any:
    with bz2.open(path) as file:
        return pickle.load(file) if trust else _PlainUnpickler(file).load()


class _PlainUnpickler(pickle.Unpickler):
    """Refuses to name anything but what plain data is made of; so nothing in a pickle can run."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return _PLAIN[module, name]
        raise pickle.UnpicklingError(f"it names {module}.{name}")
