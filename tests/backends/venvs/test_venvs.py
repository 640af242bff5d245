import multiprocessing
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from automcu_ray.core.errors import ToolchainError, ToolMissingError
from backends.venvs import environment as venvs
from backends.venvs.environment import ENVIRONMENTS, Environment

pytestmark = pytest.mark.toolchain


class FakePip:
    """Stands for venv and pip: leaves an interpreter, and remembers every command."""

    def __init__(self, exit_status: int = 0, stderr: str = "", interpreter: bool = True) -> None:
        self.commands: list[list[str]] = []
        self.exit_status, self.stderr, self.interpreter = exit_status, stderr, interpreter

    def __call__(self, argv: Sequence[str], *, timeout_s: float, cwd: Path) -> subprocess.CompletedProcess[str]:
        self.commands.append(list(argv))
        if "venv" in argv:
            (Path(argv[-1]) / "bin").mkdir(parents=True)
            (Path(argv[-1]) / "bin" / "python").touch()
            return subprocess.CompletedProcess(argv, 0, "", "")
        return subprocess.CompletedProcess(argv, self.exit_status, "", self.stderr)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOMCU_CACHE", str(tmp_path))
    monkeypatch.delenv("PIP_ARGS", raising=False)
    return tmp_path


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    (tmp_path / "small.txt").write_text("one==1.0\n")
    monkeypatch.setattr(venvs, "FOREIGN", tmp_path)
    return Environment("small")


def test_it_is_made_once_from_its_own_list(environment: Environment, cache: Path) -> None:
    pip = FakePip()
    assert not environment.ready
    environment.ensure(pip)
    environment.ensure(pip)
    make, install = pip.commands
    assert make[1:3] == ["-m", "venv"] and make[-1] == str(environment.folder)
    assert install[0] == str(environment.python) and install[-2:] == ["-r", str(cache / "small.txt")]
    assert environment.ready and environment.folder.parent == cache / "venvs"


def test_pip_args_are_handed_to_pip(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_ARGS", "--index-url 'file:///my wheels'")
    environment.ensure(pip := FakePip())
    assert pip.commands[1][-2:] == ["--index-url", "file:///my wheels"]


def test_another_list_is_another_environment(environment: Environment, cache: Path) -> None:
    environment.ensure(FakePip())
    (cache / "small.txt").write_text("one==1.1\n")
    assert not environment.ready


def test_one_that_was_broken_off_is_made_again(environment: Environment) -> None:
    (environment.folder / "bin").mkdir(parents=True)
    (environment.folder / "bin" / "python").touch()
    (environment.folder / "half").touch()
    assert not environment.ready
    environment.ensure(FakePip())
    assert environment.ready and not (environment.folder / "half").exists()


def test_one_whose_python_is_gone_is_made_again(environment: Environment) -> None:
    environment.ensure(FakePip())
    environment.python.unlink()
    environment.python.symlink_to("/no/such/python")
    assert not environment.ready
    environment.ensure(pip := FakePip())
    assert len(pip.commands) == 2 and environment.ready


def test_without_a_network_it_says_so_and_is_not_ready(environment: Environment) -> None:
    said = "WARNING: retrying\nERROR: No matching distribution found for one==1.0\n"
    with pytest.raises(ToolMissingError) as caught:
        environment.ensure(FakePip(exit_status=1, stderr=said))
    for part in (
        "ERROR: No matching distribution",
        "PIP_ARGS",
        "python -m backends.venvs small",
        "commands.log",
    ):
        assert part in str(caught.value)
    assert not environment.ready


def test_a_pip_that_hangs_is_a_missing_tool(environment: Environment) -> None:
    def hang(argv: Sequence[str], *, timeout_s: float, cwd: Path) -> subprocess.CompletedProcess[str]:
        raise ToolchainError("python should end within 1800 s; killed.")

    with pytest.raises(ToolMissingError, match="within 1800 s"):
        environment.ensure(hang)
    assert not environment.ready


def _make(cache: Path) -> int:
    venvs.FOREIGN = cache
    pip = FakePip()
    Environment("small").ensure(pip)
    return len(pip.commands)


def test_of_several_processes_one_makes_it(environment: Environment, cache: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert sorted(pool.map(_make, [cache] * 4, chunksize=1)) == [0, 0, 0, 2]


def test_a_wrong_name_is_one_line_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert venvs.main(["velo"]) == 2
    assert "did you mean 'vela'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_requirement_is_pinned(name: str) -> None:
    lines = ENVIRONMENTS[name].requirements.read_text().split()
    assert lines and all(line.count("==") == 1 for line in lines)


def test_a_real_one_has_a_python_that_runs(environment: Environment, cache: Path) -> None:
    (cache / "small.txt").write_text("")  # nothing to install: no network
    environment.ensure()
    done = subprocess.run([environment.python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True)
    assert done.stdout.strip() == str(environment.folder)
