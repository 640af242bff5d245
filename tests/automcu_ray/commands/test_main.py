"""The console command: what it says, how it fails, and that it starts quickly."""

import subprocess
import sys
from pathlib import Path

import pytest

from automcu_ray.commands.main import app, main
from automcu_ray.runtime import interruption
from automcu_ray.runtime.command import run_app

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
    assert all(
        word in said for word in ("search", "ablate", "fidelity", "arena", "mlperf", "doctor", "automcu search --task")
    )


@pytest.mark.parametrize("command", ["search", "ablate", "fidelity"])
def test_what_the_user_has_to_fix_is_one_line_exit_2_and_nothing_written(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert automcu(monkeypatch, command, "--set", "constraints.ram_kbb=8") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: unknown key 'constraints.ram_kbb'") and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_disk_that_is_full_is_one_line_and_exit_2(
    wrapped: bool, signals: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*about: object) -> None:
        try:
            raise OSError(28, "No space left on device", "runs/a/journal.jsonl")
        except OSError as error:
            if wrapped:
                raise RuntimeError("Tune's words") from error
            raise

    monkeypatch.setattr("automcu_ray.commands.search.compose", full)
    assert automcu(monkeypatch, "search") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: runs/a/journal.jsonl: No space left on device.") and error.count("\n") == 1


def test_an_error_of_ours_is_not_taken_for_the_disks(signals: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*about: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("automcu_ray.commands.search.compose", broken)
    monkeypatch.setattr(sys, "argv", ["automcu", "search"])
    with pytest.raises(RuntimeError, match="a bug"):
        run_app(app)


def test_an_error_on_its_way_while_ray_dies_is_one_line_too(
    signals: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*about: object) -> None:
        monkeypatch.setattr(interruption, "_urgent", True)
        raise RuntimeError("no raylet")

    monkeypatch.setattr("automcu_ray.commands.search.compose", broken)
    monkeypatch.setattr("os._exit", sys.exit)  # whose end is real: nothing is waited for
    assert automcu(monkeypatch, "search") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: Ray has ended before its time (RuntimeError).") and error.count("\n") == 1


def test_it_starts_without_what_takes_seconds_to_import() -> None:
    code = "import sys; import automcu_ray.commands.main; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert SLOW_IMPORTS & set(found.stdout.split()) == set()
