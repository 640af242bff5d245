from pathlib import Path

import pytest
from typer.testing import CliRunner

from automcu_ray.commands.main import app
from automcu_ray.core.errors import ConfigError
from automcu_ray.records.journal import Repository
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.run_folder import RunFolder
from automcu_ray.studies.comparison import differences, figures, read_runs
from tests.automcu_ray.reports.test_run_report import conclude, trained

HOSTILE = "<script>alert(1)</script>"


def write_run(path: Path, *accuracies: float, searcher: str = "random", seed: int = 0, finished: bool = False) -> Path:
    folder = RunFolder(path)
    folder.create(compose({"task": "digits", "searcher": searcher}, [f"seed={seed}"]))
    journal = Repository(folder.journal)
    for number, accuracy in enumerate(accuracies, 1):
        record = trained(number, accuracy)
        journal.propose(record.candidate)
        journal.add(record)
    if finished:
        conclude(journal, journal.records[-1])
    return path


def test_runs_stand_beside_each_other_with_what_was_set_otherwise(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a" / "mine", 0.8, 0.9, finished=True)
    two = write_run(tmp_path / "b" / "mine", 0.85, searcher="evolution", seed=3)
    runs = read_runs([one, two])
    assert [run.name for run in runs] == ["mine", "mine (2)"]
    rows = dict(figures(runs))
    assert rows["best validation accuracy (proxy)"] == ["90.00 %", "85.00 %"]
    assert rows["winner: test accuracy"] == ["97.78 %", "not measured"]
    assert rows["trained, of all outcomes"] == ["2 of 2", "1 of 1"]
    settings = dict(differences(runs))
    assert settings["seed"] == ["0", "3"] and settings["searcher.name"] == ["random", "evolution"]
    assert "task" not in settings


def test_the_command_writes_one_page_without_anything_from_outside(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, 0.8, 0.9) for name in ("a", "b")]
    (runs[0] / "config.yaml").write_text(
        (runs[0] / "config.yaml").read_text().replace("task: digits", f"task: '{HOSTILE}'")
    )
    done = CliRunner().invoke(app, ["report", *map(str, runs), "--to", str(tmp_path / "both.html")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "both.html").read_text()
    assert page.count("<svg") == 1 and "trained candidates" in page
    assert HOSTILE not in page and "&lt;script&gt;" in page and "http" not in page.replace("http-equiv", "")


def test_what_is_wanted_is_said(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", 0.8)
    with pytest.raises(ConfigError, match="two or more runs"):
        CliRunner().invoke(app, ["report", str(run)], catch_exceptions=False)
    with pytest.raises(ConfigError, match="no run in"):
        CliRunner().invoke(app, ["report", str(run), str(tmp_path / "none")], catch_exceptions=False)
    with pytest.raises(ConfigError, match="there is no folder"):
        CliRunner().invoke(
            app, ["report", str(run), str(run), "--to", str(tmp_path / "no" / "x.html")], catch_exceptions=False
        )
