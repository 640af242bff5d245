import io
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from automcu_ray.networks.cell import EDGES, OPERATIONS, CellSpec
from automcu_ray.networks.cell_space import kernel_area
from automcu_ray.run import supervisor
from automcu_ray.run.plan import prepare
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.run_folder import RunFolder

Search = Callable[..., dict[str, Any] | None]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up benchmark: accuracy grows with the kernel positions of a cell."""
    folder = tmp_path_factory.mktemp("data") / "nasbench201"
    folder.mkdir()
    cells = [CellSpec.model_construct(operations=found) for found in product(OPERATIONS, repeat=len(EDGES))]
    accuracy = [20.0 + kernel_area(cell) for cell in cells]
    names = [str(cell) for cell in cells]
    columns = {"arch_str": names, "cifar10_valid": accuracy, "cifar10_test": [value - 1 for value in accuracy]}
    pq.write_table(pa.table(columns), folder / "nasbench201.parquet")
    return folder.parent


@pytest.fixture
def search(ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    """Run a whole search in this process, on the Ray of the tests: groups of the configuration, then settings."""
    monkeypatch.setenv("AUTOMCU_CACHE", str(tmp_path / "cache"))

    def run(folder: Path, groups: dict[str, str], *settings: str) -> dict[str, Any] | None:
        config = compose({"task": "digits", **groups}, ["resources.gpus_per_trial=0", *settings])
        return supervisor.run(prepare(config), RunFolder(folder), Console(file=io.StringIO()))

    return run
