"""What the README promises of the default search, asked of a whole run: minutes, so `make test-slow`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from backends.programs import missing

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "search.py"


@pytest.mark.slow
@pytest.mark.skipif(
    bool(missing(["arm-none-eabi-gcc", "qemu-system-arm"])), reason="needs arm-none-eabi-gcc and qemu-system-arm"
)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_default_search_finds_an_accurate_network_that_fits_and_runs(seed: int, tmp_path: Path) -> None:
    argv = [sys.executable, str(SCRIPT), "--runs", str(tmp_path), "--name", "run", "--seed", str(seed)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "journal.jsonl").read_text().splitlines()]
    statuses = [row["record"]["status"] for row in rows if row["event"] == "record"]
    assert statuses.count("ok") >= 12 and statuses.count("infeasible") >= 1
    manifest = json.loads((tmp_path / "run" / "bundle" / "manifest.json").read_text())
    assert manifest["ram_bytes"] <= 24 * 1024 and manifest["flash_bytes"] <= 48 * 1024
    assert manifest["test_accuracy"] >= 0.97
    assert manifest["bit_equal_images"] == manifest["board_images"] >= 64
