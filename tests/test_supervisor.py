"""What a run leaves, whatever goes wrong at its end."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from automcu_ray import supervisor
from automcu_ray.config import compose
from automcu_ray.errors import ConfigError
from automcu_ray.plan import prepare
from automcu_ray.repository import Repository
from automcu_ray.run_folder import RunFolder
from trainables.datasets.base import Dataset


def test_records_are_written_before_a_report_that_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*about: object) -> None:
        raise RuntimeError("no report")

    monkeypatch.setattr(supervisor, "write_report", fails)
    plan = prepare(compose({"task": "digits", "searcher": "random", "backend": "analytic"}))
    folder = RunFolder(tmp_path / "runs" / "done")
    folder.path.mkdir(parents=True)
    Repository(folder.journal).append("finished", manifest=None)
    with pytest.raises(RuntimeError, match="no report"):
        supervisor.run(plan, folder, Console(file=io.StringIO()))
    assert folder.parquet.exists()


def test_a_run_does_not_go_on_with_other_data_and_leaves_its_folder_as_it_was(tmp_path: Path) -> None:
    plan = prepare(compose({"task": "digits", "searcher": "random", "backend": "analytic"}))
    assert isinstance(plan.dataset, Dataset)
    folder = RunFolder(tmp_path / "runs" / "begun")
    folder.path.mkdir(parents=True)
    Repository(folder.journal).append("started", data={**plan.dataset.about, "train": 1168})
    before = folder.journal.read_bytes()
    with pytest.raises(ConfigError, match=r"has changed .*: wanted train 1168; found train 1167\. Put its files back"):
        supervisor.run(plan, folder, Console(file=io.StringIO()), resumed=True)
    assert [path.name for path in folder.path.iterdir()] == ["journal.jsonl"]
    assert folder.journal.read_bytes() == before


@pytest.mark.parametrize("told", [{}, {"data": {}}])
def test_a_run_that_did_not_say_what_its_data_were_goes_on(told: dict[str, Any], tmp_path: Path) -> None:
    plan = prepare(compose({"task": "digits", "searcher": "random", "backend": "analytic"}))
    folder = RunFolder(tmp_path / "runs" / "begun")
    folder.path.mkdir(parents=True)
    Repository(folder.journal).append("started", at_s=1.0, versions={}, engine=None, host={}, **told)
    Repository(folder.journal).append("finished", manifest=None)
    assert supervisor.run(plan, folder, Console(file=io.StringIO()), resumed=True) is None
