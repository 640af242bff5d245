"""The API for scripts and notebooks, as a function and as the docs show it."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from automcu_ray import SearchResult, search, task
from automcu_ray.core.errors import ConfigError
from automcu_ray.runtime.config import compose
from searchers.tune_searchers import LLMMemorySearch, RandomSearch

ROOT = Path(__file__).parents[3]


def test_importing_the_package_loads_neither_torch_nor_ray() -> None:
    said = "import sys, automcu_ray; sys.exit(bool({'torch', 'ray', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", said], cwd=ROOT).returncode == 0


@pytest.mark.parametrize("make", [LLMMemorySearch, RandomSearch])
@pytest.mark.parametrize("wrong", [{"dataset": "digits"}, "digits", None])
def test_a_task_of_another_type_is_an_error(make: Any, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"task: a Task is wanted, such as automcu_ray\.task\('digits'\), found"):
        make(wrong)


def test_a_task_is_made_of_names_and_settings() -> None:
    made = task("digits", target="rp2040", settings={"constraints.ram": "16KB"})
    assert made.target.name == "rp2040" and made.ram_limit_bytes == 16 * 1024


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"searcher": "nobody"}, "unknown searcher 'nobody'"),
        ({"settings": {"budget.trainde": 3}}, "budget.trainde"),
        ({"resume": "runs/none"}, "no run in runs/none"),
        ({"resume": "runs/none", "seed": 1}, "leave the other arguments out"),
        ({"config": compose({}), "seed": 1}, "config says everything"),
    ],
)
def test_what_cannot_be_used_is_said_before_anything_is_written(
    arguments: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        search(**arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.usefixtures("ray_cluster", "qemu")
def test_the_notebook_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGINT)
    cells = json.loads((ROOT / "docs/examples/search.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(cell["source"], names)
    result, table = names["result"], names["table"]
    assert isinstance(result, SearchResult) and result.winner.board_agrees is True and result.bundle is not None
    assert len(table) == len(result.records) >= 3 and (table["status"] == "ok").sum() == 3
    assert str(result.folder.report) in result._repr_html_()
    assert names["again"].winner == result.winner
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.thorough
@pytest.mark.usefixtures("ray_cluster")
def test_trials_are_logged_as_tensorboard_reads_them(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    settings = {"budget.trained": 2, "budget.finalists": 0, "loggers": ["tensorboard"], "board.mode": "none"}
    result = search(searcher="random", backend="analytic", settings=settings, runs=tmp_path, quiet=True)
    trained = {record.candidate.number for record in result.records if record.status == "ok"}
    logged = list(result.folder.tune.glob("*/*/events.out.tfevents.*"))
    assert {int(path.parent.name) for path in logged} == trained and len(trained) == 2
    assert all(b"val_accuracy" in path.read_bytes() for path in logged)


def test_a_logger_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Exception, match=r"needs the Python package wandb: pip install 'automcu-ray\[wandb\]'"):
        task(settings={"loggers": ["wandb"]})


@pytest.mark.thorough
@pytest.mark.usefixtures("ray_cluster")
def test_the_script_with_a_trainable_of_its_own_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "own_trainable"}
    exec((ROOT / "docs/examples/own_trainable.py").read_text(), names)
    names["SAMPLES"] = 3
    names["main"]()
    first = capsys.readouterr().out.splitlines()[-2]
    assert 0.1 < float(first.split()[0]) <= 1 and "backbone" in first
