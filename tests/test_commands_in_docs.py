"""Commands that README and site tell people to type: each is understood as it stands."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from automcu_ray.commands.main import main

ROOT = Path(__file__).resolve().parents[1]
COMMAND = re.compile(r"^ {4,}(?:automcu|python scripts/(?=\w+\.py)) ?(.*)$", re.MULTILINE)
ABSENT = (  # what a machine may lack: data, models, keys, tools, a file of the reader's own
    "no data folder",
    "torchvision, which would download it, cannot be used",
    "no file ",
    "no recorded calls",
    "no run in",
    "needs Python packages",
    "needs a model",
    "wants a folder with a model",
    "needs absolute paths",
    "cycles_per_instruction",
    "STEDGEAI",
    "backend 'c_qemu' needs",
)


def commands() -> list[str]:
    """Return the searches of README and docs, continued lines joined, comments and repetitions gone."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    lines = [line for page in pages for line in COMMAND.findall(re.sub(r"\\\n\s*", "", page.read_text()))]
    words = [shlex.split(re.sub(r"^(\w+)\.py", r"\1", line), comments=True) for line in lines]
    return sorted({shlex.join(found) for found in words if found[0] == "search"})


def test_commands_are_found() -> None:
    found = commands()
    assert len(found) > 20 and "search --resume runs/latest" in found


@pytest.mark.thorough
@pytest.mark.parametrize("command", commands())
def test_a_search_in_the_docs_is_understood_or_names_what_this_machine_lacks(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["automcu", *shlex.split(command), "--dry-run"])
    with pytest.raises(SystemExit) as caught:
        main()
    said = capsys.readouterr().err
    assert caught.value.code == 0 or (said.startswith("error: ") and any(word in said for word in ABSENT)), said
    assert list(tmp_path.iterdir()) == []
