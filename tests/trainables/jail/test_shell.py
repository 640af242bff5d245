"""An agent's commands: they see their folder and the system, and end."""

import os
import socket
from pathlib import Path

import pytest

from automcu_ray.runtime.config import JailConfig
from trainables.jail.shell import JailedShell

pytestmark = pytest.mark.usefixtures("sandbox")


def test_a_command_works_in_its_folder_and_has_numpy(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("seen")
    said = JailedShell(JailConfig())(
        "cat a.txt; python3 -c 'import numpy; print(numpy.ones(3).sum())' > b.txt", tmp_path
    )
    assert said.startswith("exit 0") and "seen" in said
    assert (tmp_path / "b.txt").read_text() == "3.0\n"


def test_it_reaches_no_file_no_network_and_no_environment_of_ours(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("labels")
    (tmp_path / "folder").mkdir()
    os.environ["ARENA_TEST_SECRET"] = "key"
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            command = f"cat {secret}; env; echo > /usr/x; touch /x; (echo > /dev/tcp/127.0.0.1/{port}) && echo reached"
            said = JailedShell(JailConfig())(command, tmp_path / "folder")
    finally:
        del os.environ["ARENA_TEST_SECRET"]
    assert "labels" not in said and "ARENA_TEST_SECRET" not in said and "reached" not in said


@pytest.mark.parametrize("command", ["sleep 60", ":(){ :|:& };: ; sleep 60", "yes > big"])
def test_what_does_not_end_or_grows_is_ended(command: str, tmp_path: Path) -> None:
    said = JailedShell(JailConfig(processes=16), timeout_s=2)(command, tmp_path)
    assert "killed" in said or "exit" in said
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2**30
