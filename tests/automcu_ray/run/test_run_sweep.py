"""Sweeps: every run once, whatever happens in between, and one table at the end."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from automcu_ray.core.errors import ConfigError, ToolchainError
from automcu_ray.core.folder_lock import held
from automcu_ray.core.learning import Learning, Target
from automcu_ray.records.events import Searched, Started
from automcu_ray.records.journal import Repository
from automcu_ray.records.metrics import Metrics
from automcu_ray.run import run_sweep
from automcu_ray.runtime.run_folder import RunFolder
from automcu_ray.studies.sweep import Sweep, load_sweep, runs
from automcu_ray.studies.sweep_report import grids, notes, write_page
from automcu_ray.studies.sweep_statistics import RunResult
from tests.scripts.test_search import records, wait_until

pytestmark = pytest.mark.thorough

SCRIPT = Path(__file__).parents[3] / "scripts" / "ablate.py"
SWEEP: dict[str, Any] = {
    "title": "two searchers",
    "seeds": 2,
    "baseline": "chance",
    "settings": ["budget.trained=4"],
    "cases": [{"label": "table", "task": "nasbench201"}],
    "arms": [{"label": "chance", "searcher": "random"}, {"label": "largest", "searcher": "capacity"}],
    "published": [{"label": "others", "source": "a paper", "values": {"table": 50.0}}],
}


def ablate(monkeypatch: pytest.MonkeyPatch, data: Path, out: Path, sweep: dict[str, Any] | None = None) -> int:
    """Run the script; return its exit status."""
    out.mkdir(exist_ok=True, parents=True)
    (out / "sweep.yaml").write_text(yaml.safe_dump(sweep or SWEEP))
    monkeypatch.setenv("AUTOMCU_DATA", str(data))
    monkeypatch.setattr(sys, "argv", [SCRIPT.name, "--sweep", str(out / "sweep.yaml"), "--out", str(out / "results")])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(SCRIPT), run_name="__main__")
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


def test_arms_of_table3_that_ask_run_with_a_simulated_engine(
    monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path
) -> None:
    table3 = load_sweep("table3")
    arms = [arm.model_dump(mode="json") for arm in table3.arms if arm.searcher in ("genius", "llm", "llm_memory")]
    settings = ["budget.trained=5", "engine=simulated"]
    asking = {**SWEEP, "arms": [*SWEEP["arms"][:1], *arms], "seeds": 1, "settings": settings}
    assert ablate(monkeypatch, data, tmp_path, asking) == 0
    rows = pq.read_table(tmp_path / "results" / "results.parquet").to_pylist()
    assert [row["arm"] for row in rows[1:]] == [arm["label"] for arm in arms] and len(arms) == 4
    table = (tmp_path / "results" / "table.md").read_text()
    assert "first ask validation %" in table and "no language model took part" in table


@pytest.mark.parametrize(
    ("error", "status", "done"),
    [
        (KeyboardInterrupt(), 130, 2),
        (ToolchainError("gcc vanished"), 1, 3),
        (ConfigError("a file is gone"), 2, 2),
    ],
)
def test_what_ends_the_third_run_costs_no_results_and_nothing_is_run_twice(
    monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path, error: BaseException, status: int, done: int
) -> None:
    real, calls = run_sweep._run, []

    def fail_at_the_third(run: Any, *rest: Any) -> Any:
        calls.append(run.name)
        if len(calls) == 3:
            raise error
        return real(run, *rest)

    monkeypatch.setattr(run_sweep, "_run", fail_at_the_third)
    results = tmp_path / "results"
    assert ablate(monkeypatch, data, tmp_path) == status
    assert len(pq.read_table(results / "results.parquet")) == done and (results / "index.html").exists()
    for _ in range(2):
        assert ablate(monkeypatch, data, tmp_path) == 0
    assert len(calls) == 5 and len(set(calls)) == 4 and len(pq.read_table(results / "results.parquet")) == 4


def test_a_second_driver_of_a_sweep_is_one_line_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with held(tmp_path / "results"):
        assert ablate(monkeypatch, data, tmp_path) == 2
    error = capsys.readouterr().err
    assert "results is in use" in error and error.count("\n") == 1
    assert ablate(monkeypatch, data, tmp_path) == 0


@pytest.mark.slow  # Ray starts, and each of its processes imports torch
def test_look_ups_side_by_side_give_what_they_give_alone(
    ray_cluster: None, monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path
) -> None:
    assert ablate(monkeypatch, data, tmp_path / "alone") == 0
    monkeypatch.setattr(run_sweep, "_WORTH_RAY", 1)
    assert ablate(monkeypatch, data, tmp_path / "beside") == 0
    alone, beside = (
        pq.read_table(tmp_path / name / "results" / "results.parquet").drop(["seconds", "anytime_seconds"])
        for name in ("alone", "beside")
    )
    assert alone.equals(beside)


def test_several_cases_have_an_overview_and_a_table_each(tmp_path: Path) -> None:
    cases = [{"label": label, "task": "nasbench201"} for label in ("one", "two")]
    sweep = Sweep.model_validate({**SWEEP, "cases": cases, "published": [], "notes": ["read this"]})
    found = [result(arm, case, seed) for arm in ("chance", "largest") for case in ("one", "two") for seed in range(6)]
    overview, *rest = grids(sweep, found)
    assert overview.head == ["searcher", "one, test %", "two, test %"]
    assert [grid.title for grid in rest] == ["one", "two"]
    assert rest[0].head[1] == "test %" and "US dollars" not in rest[0].head and "tokens" not in rest[0].head
    assert [row[0].text for row in overview.rows] == ["chance", "largest"]
    assert overview.rows[1][1].p == pytest.approx(2 / 2**6)  # six wins of six; Holm has one arm to correct for
    assert notes(sweep, found)[-1] == "read this" and "largest" in notes(sweep, found)[1]


def test_without_a_test_set_arms_are_compared_by_validation(tmp_path: Path) -> None:
    sweep = Sweep.model_validate({**SWEEP, "published": [{"label": "x", "source": "y", "values": {"seconds": 7}}]})
    found = [result("chance", "table", 0, test=None), result("largest", "table", 0, test=None, best=None)]
    (grid,) = grids(sweep, found)
    assert grid.head[1] == "best validation %" and grid.rows[0][1].text == "50.00"
    assert [row[-1].text for row in grid.rows] == ["0 of 1", "1 of 1", "-"]
    assert grid.rows[2][grid.head.index("seconds")].text == "7.00"


def test_arms_are_compared_by_the_tasks_own_metric(tmp_path: Path) -> None:
    target = Target(name="speed", mean=3.0, deviation=1.0, trivial_mae=2.0)
    learning = Learning.of("regression", "mae", targets=(target,))
    sweep = Sweep.model_validate({**SWEEP, "published": []})
    found = [
        result(arm, "table", 0, test=None).replace(learning=learning, test_value=value)
        for arm, value in (("chance", 0.75), ("largest", 0.5))
    ]
    (grid,) = grids(sweep, found)
    assert grid.head[1:4] == ["test mae", "best validation mae", "first ask validation mae"]
    assert [cell.text for cell in grid.rows[1][1:4]] == ["0.5000", "1.0000", "1.0000"]  # a score of 0.5 of 2.0
    write_page(tmp_path / "page.html", sweep, found)
    page = (tmp_path / "page.html").read_text()
    assert "best validation score by mae" in page and "accuracy" not in page.split("</style>")[-1]


def result(arm: str, case: str, seed: int, *, test: float | None = 0.5, best: float | None = 0.5) -> RunResult:
    """A run whose accuracies grow with the seed, and by a hundredth if it is of the largest."""
    more = 0.01 * (arm == "largest") * (seed + 1)
    found = Metrics(proposals=1, trained=1, distinct=1, anytime=(best,))
    accuracy = None if test is None else test + more
    about = {"name": f"{arm}{case}{seed}", "seconds": 1.0, "versions": {}, "by_rules": arm == "largest"}
    return RunResult(arm=arm, case=case, seed=seed, metrics=found, test_accuracy=accuracy, **about)  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("name", "seeds", "runs_a_seed"),
    [
        ("table1", 3, 2),
        ("table2", 3, 4),
        ("table3", 10, 12 * 6),
        ("table4", 3, 4),
        ("feedback", 3, 9 * 2),
        ("mcu_digits", 3, 8),
        ("mcu_cifar10", 3, 8),
    ],
)
def test_every_sweep_of_ours_can_be_run(name: str, seeds: int, runs_a_seed: int) -> None:
    sweep = load_sweep(name)
    assert sweep.seeds == seeds
    assert len(list(runs(sweep.replace(seeds=1)))) == runs_a_seed


REAL: dict[str, Any] = {
    "title": "real runs",
    "seeds": 2,
    "baseline": "chance",
    "settings": ["budget.trained=4", "budget.finalists=0", "trainer.proxy.epochs=2"],
    "cases": [{"label": "digits", "task": "digits", "settings": ["backend={name: analytic}", "board.mode=none"]}],
    "arms": [{"label": "chance", "searcher": "random"}],
}


def test_a_run_that_ctrl_c_ended_is_not_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(plan: Any, folder: RunFolder, *rest: Any, **more: Any) -> None:
        folder.create(plan.config)
        repository = Repository(folder.journal)
        repository.append(Started(at_s=1.0))
        repository.append(Searched(seconds=1.0, interrupted=True))

    monkeypatch.setattr("automcu_ray.run.supervisor.run", interrupted)
    monkeypatch.setattr("automcu_ray.runtime.cluster.start", lambda resources: False)
    assert ablate(monkeypatch, tmp_path, tmp_path, REAL) == 130
    assert not list((tmp_path / "results" / "runs").glob("*.json"))


@pytest.mark.ray
@pytest.mark.slow
def test_a_sweep_of_real_runs_killed_in_the_middle_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(REAL))
    argv = [sys.executable, str(SCRIPT), "--sweep", str(tmp_path / "sweep.yaml"), "--out", str(tmp_path / "out")]
    environment = {**os.environ, "AUTOMCU_CACHE": str(tmp_path / "cache")}
    silent: dict[str, Any] = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    first = subprocess.Popen(argv, **silent)
    wait_until(
        lambda: len(list((tmp_path / "out" / "runs").glob("*.json"))) == 1 and min(trained(tmp_path)) >= 1, first
    )
    first.kill()
    first.wait()
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").glob("*.json")}
    before = {path: path.read_text() for path in journals(tmp_path)}
    assert subprocess.run(argv, **silent, timeout=400, check=False).returncode == 0
    assert all(path.stat().st_mtime_ns == at for path, at in done.items())
    assert all(path.read_text().startswith(text) for path, text in before.items())
    assert trained(tmp_path) == [4, 4]
    rows = pq.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    assert [row["trained"] for row in rows] == [4, 4] and all(row["test_accuracy"] is None for row in rows)
    assert all(0 < row["anytime_seconds"][0] <= row["anytime_seconds"][-1] <= row["seconds"] for row in rows)


def journals(folder: Path) -> list[Path]:
    """The journal of each run; `latest` is one of them."""
    found = (folder / "out" / "runs").glob("*/journal.jsonl")
    return sorted(path for path in found if not path.parent.is_symlink())


def trained(folder: Path) -> list[int]:
    """How many candidates each run that has begun has trained, each counted once."""
    counts = []
    for path in journals(folder):
        numbers = [one["candidate"]["number"] for one in records(path.parent) if one["status"] == "ok"]
        assert len(numbers) == len(set(numbers))
        counts.append(len(numbers))
    return counts if len(counts) == 2 else [0]
