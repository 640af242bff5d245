"""What a run leaves, whatever goes wrong at its end."""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from automcu_ray.core.errors import ConfigError, ToolMissingError
from automcu_ray.records.events import Finished, Started
from automcu_ray.records.journal import Repository
from automcu_ray.run import supervisor
from automcu_ray.run.plan import Plan, prepare
from automcu_ray.runtime import cluster
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.run_folder import RunFolder
from trainables.datasets.base import Dataset


@pytest.fixture
def plan() -> Plan:
    return prepare(compose({"task": "digits", "searcher": "random", "backend": "analytic"}))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """The folder of a run that has begun."""
    found = RunFolder(tmp_path / "runs" / "begun")
    found.path.mkdir(parents=True)
    return found


def test_records_are_written_before_a_report_that_may_fail(
    plan: Plan, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*about: object) -> None:
        raise RuntimeError("no report")

    monkeypatch.setattr(supervisor, "write_report", fails)
    Repository(folder.journal).append(Finished(manifest=None))
    with pytest.raises(RuntimeError, match="no report"):
        supervisor.run(plan, folder, Console(file=io.StringIO()))
    assert folder.parquet.exists()


def test_a_run_does_not_go_on_with_other_data_and_leaves_its_folder_as_it_was(plan: Plan, folder: RunFolder) -> None:
    assert isinstance(plan.dataset, Dataset)
    Repository(folder.journal).append(Started(data={**plan.dataset.about, "train": 1168}))
    before = folder.journal.read_bytes()
    with pytest.raises(ConfigError, match=r"has changed .*: wanted train 1168; found train 1167\. Put its files back"):
        supervisor.run(plan, folder, Console(file=io.StringIO()), resumed=True)
    assert [path.name for path in folder.path.iterdir()] == ["journal.jsonl"]
    assert folder.journal.read_bytes() == before


def test_a_second_driver_of_a_run_is_refused_and_a_dead_one_holds_nothing(plan: Plan, folder: RunFolder) -> None:
    hold = "import sys, pathlib; from automcu_ray.core.folder_lock import hold; hold(pathlib.Path(sys.argv[1])); "
    script = f"{hold}print('held', flush=True); sys.stdin.read()"
    Repository(folder.journal).append(Finished(manifest=None))
    before = folder.journal.read_bytes()
    first = subprocess.Popen(
        [sys.executable, "-c", script, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert first.stdout is not None and first.stdout.readline() == b"held\n"
    with pytest.raises(ConfigError, match=r"begun is in use: another process is working there"):
        supervisor.run(plan, folder, Console(file=io.StringIO()), resumed=True)
    assert folder.journal.read_bytes() == before
    first.kill()
    first.wait()
    assert supervisor.run(plan, folder, Console(file=io.StringIO()), resumed=True) is None


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), RuntimeError("actor died")])
def test_the_death_of_ray_is_named_and_the_report_is_written(
    ending: BaseException, plan: Plan, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*about: object) -> None:
        raise ending

    monkeypatch.setattr(supervisor, "_run", broken)
    monkeypatch.setattr(cluster, "died", lambda error=None: "gcs_server")
    with pytest.raises(ToolMissingError, match=r"Ray's gcs_server has ended before its time.*--resume"):
        supervisor.run(plan, folder, Console(file=io.StringIO()))
    assert folder.report.exists() and folder.parquet.exists()


def test_last_words_are_ready_until_the_report_is_written(
    plan: Plan, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's C++ ended the process while it wrote: exit status 1 and not a word."""
    happened: list[str] = []

    @contextlib.contextmanager
    def words(line: str) -> Iterator[None]:
        with contextlib.suppress(OSError):
            yield
        happened.append("no words any more")

    def fail(*about: object) -> None:
        raise OSError("the disk")

    monkeypatch.setattr(supervisor, "last_words", words)
    monkeypatch.setattr(supervisor, "write_report", lambda *about: happened.append("report"))
    monkeypatch.setattr(supervisor, "_run", fail)
    supervisor.run(plan, folder, Console(file=io.StringIO()))
    assert happened == ["report", "no words any more"]


def test_ray_is_asked_whether_it_died_before_it_is_stopped(
    plan: Plan, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped first, it would look like an end of its own; then the run ended with a traceback of Ray's."""
    happened: list[str] = []

    def fail(*about: object) -> None:
        raise RuntimeError("the raylet does not answer")

    monkeypatch.setattr(supervisor, "search", fail)
    monkeypatch.setattr(cluster, "start", lambda *about: True)
    monkeypatch.setattr(cluster, "stop", lambda: happened.append("stopped"))
    monkeypatch.setattr(cluster, "died", lambda error=None: happened.append("asked") or "raylet")
    with pytest.raises(ToolMissingError, match=r"Ray's raylet has ended"):
        supervisor.run(plan, folder, Console(file=io.StringIO()))
    assert happened[:2] == ["asked", "stopped"]


@pytest.mark.thorough
@pytest.mark.parametrize("told", [{}, {"data": {}}])
def test_a_run_that_did_not_say_what_its_data_were_goes_on(told: dict[str, Any], plan: Plan, folder: RunFolder) -> None:
    row = {"event": "started", "at_s": 1.0, "versions": {}, "engine": None, "host": {}, **told}
    folder.journal.write_text(json.dumps(row) + "\n")
    Repository(folder.journal).append(Finished(manifest=None))
    assert supervisor.run(plan, folder, Console(file=io.StringIO()), resumed=True) is None
