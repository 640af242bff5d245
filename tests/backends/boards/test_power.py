"""Power cycling: the command line, what may go wrong with it, and a device that comes back, with a stand-in on PATH."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import ValidationError

from automcu_ray.core.errors import ToolchainError
from backends.boards import power
from backends.boards.pool import BoardEntry
from backends.programs import Completed

DESK = BoardEntry(id="desk", runner="pyocd", serial="loop://", hub="1-1.4", port=2)


@pytest.fixture
def uhubctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A uhubctl that writes down its arguments, brings a device back, and knows one hub."""
    script = tmp_path / "bin" / "uhubctl"
    script.parent.mkdir()
    script.write_text(
        f"#!{sys.executable}\nimport json, pathlib, sys\n"
        f"pathlib.Path({str(tmp_path / 'argv')!r}).write_text(json.dumps(sys.argv[1:]))\n"
        "if '1-1.4' not in sys.argv: sys.exit('No compatible devices detected at location 9!')\n"
        f"pathlib.Path({str(tmp_path / 'ttyACM0')!r}).touch()\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    return tmp_path / "argv"


def test_the_port_of_the_hub_is_switched_and_its_device_waited_for(uhubctl: Path) -> None:
    device = uhubctl.with_name("ttyACM0")
    assert power.cycle(DESK.replace(serial=str(device))) == "" and device.exists()
    said = json.loads(uhubctl.read_text())
    assert said == ["--location", "1-1.4", "--ports", "2", "--action", "cycle", "--delay", "2"]
    assert "did not come back within 0.1 s" in power.cycle(DESK.replace(serial="/dev/no-such-port"), back_s=0.1)


def test_why_not_is_told_in_a_line(uhubctl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert power.cycle(DESK.replace(hub="9")) == "uhubctl failed (1): No compatible devices detected at location 9!"
    assert "no hub and port" in power.cycle(BoardEntry(id="desk"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert power.cycle(DESK).endswith("Install it: apt install uhubctl.")


def test_one_that_hangs_is_given_up(tmp_path: Path) -> None:
    def hangs(argv: Sequence[str], *, timeout_s: float, cwd: Path) -> Completed:
        raise ToolchainError(f"{argv[0]} should end within {timeout_s:g} s; killed.")

    def quiet(argv: Sequence[str], *, timeout_s: float, cwd: Path) -> Completed:
        return subprocess.CompletedProcess(argv, 2, "", "")

    assert "within 60 s" in power.cycle(DESK, run=hangs)
    assert power.cycle(DESK, run=quiet) == "uhubctl failed (2): it said nothing"


@pytest.mark.parametrize(
    "fields", [{"hub": "1-1"}, {"port": 1}, {"hub": "1-1; reboot", "port": 1}, {"hub": "1", "port": 0}]
)
def test_hub_and_port_are_checked_together(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        BoardEntry.model_validate({"id": "desk", **fields})
