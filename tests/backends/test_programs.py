import sys
from pathlib import Path

import pytest

from automcu_ray.errors import ToolchainError, ToolMissingError
from backends.programs import missing, run_program, running


def test_command_and_output_are_logged(tmp_path: Path) -> None:
    done = run_program([sys.executable, "-c", "print('hello'); exit(3)"], timeout_s=30, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "hello\n")
    log = (tmp_path / "commands.log").read_text()
    assert "exit(3)" in log and "exit 3\nhello" in log


def test_a_program_that_does_not_end_is_a_toolchain_error(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"should end within 0\.2 s"):
        run_program([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.2, cwd=tmp_path)
    assert "killed after 0.2 s" in (tmp_path / "commands.log").read_text()


def test_a_missing_program_comes_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing(["qemu-system-arm"]) == ("qemu-system-arm",)
    with pytest.raises(ToolMissingError, match="apt install qemu-system-arm"):
        run_program(["qemu-system-arm"], timeout_s=1, cwd=tmp_path)


def test_a_server_is_dead_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), running(["sleep", "60"], cwd=tmp_path) as process:
        raise KeyError
    assert process.returncode == -9
