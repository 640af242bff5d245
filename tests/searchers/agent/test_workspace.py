"""Tools of the agent: what they do, and what they refuse."""

import os
from pathlib import Path

import pytest

from searchers.agent.workspace import READ_CHARS, ToolError, Workspace


def no_shell(command: str, folder: Path) -> str:
    raise AssertionError("no command is expected")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path / "workspace", no_shell)
    made.write("artifact/net.c", "void net(void) {}")
    (made.root / "data" / "train.npz").write_text("images")
    return made


def test_what_is_written_is_read_and_listed(workspace: Workspace) -> None:
    workspace.write("scratch/plan.txt", "x" * (READ_CHARS + 5))
    first = workspace.read("scratch/plan.txt")
    assert first.endswith(f"[5 more characters: read again with offset {READ_CHARS}]")
    assert workspace.read("scratch/plan.txt", READ_CHARS) == "xxxxx"
    assert "artifact/net.c 17" in workspace.files() and workspace.files("scratch").count("\n") == 0


@pytest.mark.parametrize(
    "path",
    [
        "../outside.c",
        "/etc/passwd",
        "artifact/../../outside.c",
        "artifact/main.c",
        "artifact/guard.c",
        "artifact/arena.ld",
        "artifact/sub/net.c",
        "artifact/net.S",
        "artifact/Makefile",
        "data/train.npz",
        "attempts/iteration_1/net.c",
        "scratch/a/b.txt",
        "journal.jsonl",
        "artifact",
        "",
        "a\0b",
        "x" * 300,
    ],
)
def test_a_path_that_is_not_the_agents_is_refused_and_noted(path: str, workspace: Workspace, tmp_path: Path) -> None:
    before = workspace.files()
    with pytest.raises(ToolError):
        workspace.write(path, "int x;")
    assert len(workspace.refused) == 1 and workspace.files() == before
    assert [one.name for one in tmp_path.iterdir()] == ["workspace"]


def test_reading_outside_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("labels")
    for path in ("../secret", str(tmp_path / "secret"), "nothing"):
        with pytest.raises(ToolError):
            workspace.read(path)


def test_a_command_works_on_a_copy_and_only_what_could_be_written_is_kept(tmp_path: Path) -> None:
    def shell(command: str, folder: Path) -> str:
        (folder / "artifact" / "net.c").write_text("int changed;")
        (folder / "artifact" / "main.c").write_text("int main;")
        (folder / "artifact" / "old.h").unlink()
        (folder / "scratch" / "found.txt").write_text("found")
        (folder / "data" / "train.npz").write_text("forged")
        os.symlink("/etc/passwd", folder / "scratch" / "link")
        return "exit 0\n" + "y" * 20_000

    workspace = Workspace(tmp_path / "workspace", shell)
    (workspace.root / "data" / "train.npz").write_text("images")
    workspace.write("artifact/old.h", "int old;")
    said = workspace.run("make")
    assert said.startswith("exit 0") and len(said) < 8000 and said.count("not kept:") == 3
    assert workspace.files() == "artifact/net.c 12\ndata/train.npz 6\nscratch/found.txt 5"
    assert workspace.read("data/train.npz") == "images"


def test_notes_are_kept_and_bounded(workspace: Workspace) -> None:
    workspace.write("notes.md", "n" * 10_000)
    assert len(workspace.notes) == 4_000
