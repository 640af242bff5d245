"""The command line around a confined program, and what is said where there can be none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from automcu_ray.core import confinement
from automcu_ray.core.confinement import confined, environment, obstacle
from backends import programs
from backends.programs import run_confined


@pytest.fixture
def asked_anew() -> Iterator[None]:
    obstacle.cache_clear()
    yield
    obstacle.cache_clear()


def test_without_bubblewrap_there_is_a_remedy(
    asked_anew: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert obstacle() == "bwrap is not on PATH. Install it: apt install bubblewrap."


def test_a_bubblewrap_that_may_not_is_quoted(asked_anew: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho bwrap: No permissions to create new namespace >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert "No permissions to create new namespace. Allow them (sysctl" in obstacle()


def test_where_there_is_none_a_compiler_runs_as_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(programs, "obstacle", lambda: "no namespaces")
    assert run_confined(["sh", "-c", "cat /proc/1/comm"], timeout_s=30, cwd=tmp_path).returncode == 0


def test_a_toolchain_of_ones_own_is_visible_and_files_named_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "toolchain" / "bin" / "cc"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin")
    words = confined(["cc", "-c", "/opt/parts/main.c", "net.c"], folder=tmp_path / "work")
    binds = {words[i + 1] for i, word in enumerate(words) if word in ("--ro-bind", "--ro-bind-try")}
    assert binds == {*confinement.SYSTEM, str(tmp_path / "toolchain"), "/opt/parts"}
    assert words[-4:] == ["cc", "-c", "/opt/parts/main.c", "net.c"] and "--unshare-net" in words
    assert set(environment(tmp_path)) == {"PATH", "TMPDIR", "HOME", "LANG"}
