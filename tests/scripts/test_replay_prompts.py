"""Prompts of a recorded run, rendered as the templates are now."""

import runpy
import sys
from pathlib import Path

import pytest

from automcu_ray.records.journal import Repository
from automcu_ray.run.assembly import make_searcher
from automcu_ray.run.plan import prepare
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.run_folder import RunFolder
from automcu_ray.testing.searcher_contract import drive

SCRIPT = Path(__file__).parents[2] / "scripts" / "replay_prompts.py"
SETTINGS = ["budget.trained=6", "searcher.fill=null", "warm_start.searcher=null"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A search of six candidates, with a simulated engine and nothing trained."""
    groups = {"task": "digits", "backend": "analytic", "searcher": "llm", "engine": "simulated"}
    config = compose(groups, SETTINGS)
    folder = RunFolder(tmp_path / "run")
    folder.create(config)
    searcher = make_searcher(prepare(config), folder, Repository(folder.journal), workers=())
    drive(searcher, 10)
    return folder.path


def replay(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [SCRIPT.name, *arguments])
    runpy.run_path(str(SCRIPT), run_name="__main__")


@pytest.mark.thorough
def test_what_is_rendered_again_is_what_was_asked(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replay(monkeypatch, str(run))
    lines = capsys.readouterr().out.splitlines()
    now, paid = (int(word) for word in lines[-1].split() if word.isdigit())
    requests = len(lines) - 3
    assert requests >= 2 and now + requests == paid  # the engine joins system and user message by a line end
    replay(monkeypatch, str(run), "--set", "searcher.history_tokens=0", "--show", "2")
    out = capsys.readouterr().out
    assert int(out.splitlines()[-1].split()[0]) < now and "## Tried" in out


def test_a_folder_without_a_run_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="error: no file"):
        replay(monkeypatch, str(tmp_path))
