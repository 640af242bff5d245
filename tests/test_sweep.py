"""Sweeps: every run once, whatever happens in between, and one table at the end."""

import importlib.util
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from automcu_ray import sweeper
from automcu_ray.cell import EDGES, OPERATIONS, CellSpec
from automcu_ray.cell_space import kernel_area
from automcu_ray.errors import ConfigError
from automcu_ray.sweep import load_sweep, runs

SCRIPT = Path(__file__).parents[1] / "scripts" / "ablate.py"
SWEEP: dict[str, Any] = {
    "title": "two searchers",
    "seeds": 2,
    "baseline": "chance",
    "settings": ["budget.trained=4"],
    "cases": [{"label": "table", "task": "nasbench201"}],
    "arms": [{"label": "chance", "searcher": "random"}, {"label": "largest", "searcher": "capacity"}],
    "published": [{"label": "others", "source": "a paper", "values": {"table": 50.0}}],
}


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


def ablate(monkeypatch: pytest.MonkeyPatch, data: Path, out: Path, sweep: dict[str, Any] | None = None) -> int:
    """Run the script; return its exit status."""
    out.mkdir(exist_ok=True)
    (out / "sweep.yaml").write_text(yaml.safe_dump(sweep or SWEEP))
    monkeypatch.setenv("AUTOMCU_DATA", str(data))
    argv = ["ablate.py", "--sweep", str(out / "sweep.yaml"), "--out", str(out / "results")]
    monkeypatch.setattr(sys, "argv", argv)
    found = importlib.util.spec_from_file_location("ablate", SCRIPT)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    with pytest.raises(SystemExit) as caught:
        module.main()
    return int(caught.value.code or 0)


def test_a_sweep_ends_with_table_parquet_and_page(monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path) -> None:
    assert ablate(monkeypatch, data, tmp_path) == 0
    results = tmp_path / "results"
    rows = pq.read_table(results / "results.parquet").to_pylist()
    assert [(row["arm"], row["seed"]) for row in rows] == [(a, s) for s in (0, 1) for a in ("chance", "largest")]
    assert {row["test_accuracy"] for row in rows if row["arm"] == "largest"} == {0.64}  # 20 + 45 kernel positions - 1
    table = (results / "table.md").read_text()
    assert "| largest | 64.00 ± 0.00 |" in table and "| others (a paper) | 50.00 |" in table
    page = (results / "index.html").read_text()
    assert page.count("<svg") == 1 and "64.00" in page and "<script" not in page


def test_a_sweep_started_again_runs_nothing_twice(monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path) -> None:
    calls = []
    real = sweeper._run

    def count(run: Any, *rest: Any) -> Any:
        if len(calls) == 3:
            calls.append("interrupt")
            raise KeyboardInterrupt
        calls.append(run.name)
        return real(run, *rest)

    monkeypatch.setattr(sweeper, "_run", count)
    assert ablate(monkeypatch, data, tmp_path) == 130
    assert len(pq.read_table(tmp_path / "results" / "results.parquet")) == 3
    assert ablate(monkeypatch, data, tmp_path) == 0
    assert ablate(monkeypatch, data, tmp_path) == 0
    assert len(calls) == 5 and len(set(calls)) == 5
    assert len(pq.read_table(tmp_path / "results" / "results.parquet")) == 4


def test_another_setting_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(SWEEP))
    sweep = load_sweep(str(path))
    plain, more = list(runs(sweep)), list(runs(sweep, ["budget.trained=5"]))
    assert [run.seed for run in plain] == [0, 0, 1, 1]
    assert not {run.name for run in plain} & {run.name for run in more}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"baseline": "nobody"}, "baseline must be the label of an arm"),
        ({"arms": [{"label": "chance", "searcher": "random"}] * 2}, "labels of arms must differ"),
        ({"seed": 3}, "seed"),
    ],
)
def test_a_sweep_that_cannot_be_is_an_error(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump({**SWEEP, **change}))
    with pytest.raises(ConfigError, match=message):
        load_sweep(str(path))


def test_an_unknown_sweep_offers_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="table3"):
        load_sweep("tabel3")


def test_every_sweep_of_ours_can_be_run() -> None:
    assert len(list(runs(load_sweep("table3")))) == 10 * 3 * 4
