"""The console command: what it says, how it fails, and that it starts quickly."""

import subprocess
import sys
from pathlib import Path

import pytest

from automcu_ray.commands.main import main

SLOW_IMPORTS = {"torch", "ray", "numpy", "scipy", "onnx", "pyarrow", "sklearn", "matplotlib"}


def automcu(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run the command; return its exit status."""
    monkeypatch.setattr(sys, "argv", ["automcu", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_help_names_every_subcommand_and_where_to_begin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert automcu(monkeypatch, "--help") == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("search", "ablate", "fidelity", "doctor", "automcu search --task"))


@pytest.mark.parametrize("command", ["search", "ablate", "fidelity"])
def test_what_the_user_has_to_fix_is_one_line_exit_2_and_nothing_written(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert automcu(monkeypatch, command, "--set", "constraints.ram_kbb=8") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: unknown key 'constraints.ram_kbb'") and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_it_starts_without_what_takes_seconds_to_import() -> None:
    code = "import sys; import automcu_ray.commands.main; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert SLOW_IMPORTS & set(found.stdout.split()) == set()
