"""NAS-Bench-201 as a table: what 15,625 cells reached on three data sets, so that searchers compare in seconds."""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

import pyarrow.parquet as pq

from automcu_ray.core.errors import ConfigError
from automcu_ray.networks.cell import CellSpec
from automcu_ray.problem.task import Form
from trainables.datasets.base import data_folder

_CLASSES = {"cifar10": 10, "cifar100": 100, "imagenet16": 120}


@dataclass(frozen=True)
class Table:
    """Accuracies (shares of 1) after 200 epochs, mean over the benchmark's seeds.

    A searcher sees `val_accuracy` alone; `test_accuracy` is for the winner, once.
    """

    wants: ClassVar[Form] = "cell"

    name: str
    classes: tuple[str, ...]
    input_shape: tuple[int, int, int]
    val: dict[str, float] = field(repr=False)
    test: dict[str, float] = field(repr=False)

    @property
    def outputs(self) -> int:
        """How many outputs a network for these data has."""
        return len(self.classes)

    def val_accuracy(self, cell: CellSpec) -> float:
        """Return the validation accuracy of a cell."""
        return self.val[str(cell)]

    def test_accuracy(self, cell: CellSpec) -> float:
        """Return the test accuracy of a cell."""
        return self.test[str(cell)]


def load(
    *,
    table: Literal["cifar10", "cifar100", "imagenet16"] = "cifar10",
    folder: str = "nasbench201",
    file: str | None = None,
    trust_file: bool = False,
) -> Table:
    """Return the table of one data set, from `<folder>/nasbench201.parquet`, or from an official `file`.

    Columns: arch_str, `<table>_valid` and `<table>_test` in percent. Source: Dong & Yang 2020, arXiv:2001.00326.
    The official files are those of NAS-Bench-201 (.pth) and NATS-Bench (NATS-tss): see `nasbench201_file` for what
    `trust_file` means.

    Raises:
        ConfigError: no such folder or file, or other columns.
        ToolMissingError: an official file, and no package to read it.
    """
    if file is None:
        return _read(data_folder(folder) / "nasbench201.parquet", table)
    from trainables.datasets.nasbench201_file import official_table  # torch takes seconds: only where it is needed

    return _read(official_table(Path(file), trust=trust_file), table)


@lru_cache(maxsize=3)  # a sweep asks for each table once a run
def _read(path: Path, table: str) -> Table:
    columns = ["arch_str", f"{table}_valid", f"{table}_test"]
    try:
        rows = pq.read_table(path, columns=columns).to_pydict()
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(f"{path} must be Parquet with columns {', '.join(columns)}: {str(error)[:120]}.") from error
    names, val, test = (rows[column] for column in columns)
    size = 16 if table == "imagenet16" else 32
    return Table(
        name=f"NAS-Bench-201 {table}",
        classes=tuple(str(number) for number in range(_CLASSES[table])),
        input_shape=(3, size, size),
        val={name: percent / 100 for name, percent in zip(names, val, strict=True)},
        test={name: percent / 100 for name, percent in zip(names, test, strict=True)},
    )
