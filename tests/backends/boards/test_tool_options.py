"""Command lines use options that the tools themselves list; where a tool is at hand, its own help is asked."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from backends.boards import power
from backends.boards.flashers import FLASHERS
from backends.boards.pool import BoardEntry

RECORDED = yaml.safe_load(Path(__file__).with_name("tool_options.yaml").read_text())
HUB = power.command(BoardEntry(id="one", hub="1-1.4", port=2))
USED = {
    name: (flasher.program, flasher.arguments + flasher.recovers, flasher.helps) for name, flasher in FLASHERS.items()
}
USED["power"] = (HUB[0], tuple(HUB[1:]), ("--help",))


def options(words: tuple[str, ...]) -> set[str]:
    return {word.partition("=")[0] for word in words if word.startswith("-")}


@pytest.mark.parametrize("name", USED)
def test_options_are_those_that_the_tool_lists(name: str) -> None:
    program, words, _ = USED[name]
    assert options(words) and options(words) <= set(RECORDED[program]["options"])


@pytest.mark.parametrize("name", USED)
def test_options_are_those_of_the_tools_own_help(name: str) -> None:
    program, words, helps = USED[name]
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")
    said, wide = "", {**os.environ, "COLUMNS": "200"}
    for asked in (helps, ("--help",), ("--version",), ("erase", "--help")):
        done = subprocess.run([program, *asked], capture_output=True, text=True, timeout=120, check=False, env=wide)
        said += done.stdout + done.stderr
    assert [option for option in sorted(options(words)) if option not in said] == []
    if RECORDED[program]["read"] == "help" and RECORDED[program]["version"] in said:
        assert [option for option in RECORDED[program]["options"] if option not in said] == []
