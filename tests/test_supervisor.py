"""What a run leaves, whatever goes wrong at its end."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from automcu_ray import supervisor
from automcu_ray.config import compose
from automcu_ray.plan import prepare
from automcu_ray.repository import Repository
from automcu_ray.run_folder import RunFolder


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
