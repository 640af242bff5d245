"""The seeds of paper 001's tasks, built by their vendors' own SDKs where environment variables say where these are.

MAXIM_PATH: a checkout of analogdevicesinc/msdk; AUTOMCU_AI8X, AUTOMCU_AI8X_PYTHON: of ai8x-synthesis, and its Python.
IDF_PATH: of espressif/esp-idf, with idf.py on PATH (its export.sh sourced).
"""

import os
import sys
from pathlib import Path

import pytest

from automcu_ray.run.run_arena import compose
from backends.arena.rigs import rig_of
from trainables.arena.workload import prepare, write_seed

SMALL = ["workload.network.backbone=[{type: conv, out_channels: 4}, {type: max_pool}]", "workload.training.epochs=1"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sandbox")]


def build_seed(task_name: str, folder: Path, output_bytes: int, *changes: str) -> Path:
    task = compose(task_name, ("hil",), "agent", "openai", 0, [*SMALL, *changes], None).task
    rig = rig_of(task)
    if absent := rig.lacking():
        pytest.skip("; ".join(absent))
    workload = prepare(task, folder / "workload")
    write_seed(task, workload, folder / "artifact", folder / "tools")
    built = rig.build(folder / "artifact", folder / "build", 64, output_bytes)
    assert built.hashed is not None and built.hashed.read_bytes().startswith(b"\x7fELF")
    return built.hashed


def test_the_msdk_builds_the_seed_and_is_left_as_it_was(tmp_path: Path) -> None:
    checkout = os.environ.get("AUTOMCU_AI8X", "")
    python = os.environ.get("AUTOMCU_AI8X_PYTHON", sys.executable)
    before = files_of(os.environ.get("MAXIM_PATH", ""))
    build_seed("max78000_energy", tmp_path, 40, f"rig.checkout={checkout}", f"rig.python={python}")
    assert files_of(os.environ["MAXIM_PATH"]) == before


def files_of(sdk: str) -> set[Path]:
    return set(Path(sdk).rglob("*")) if sdk else set()


def test_esp_idf_builds_the_seed(tmp_path: Path) -> None:
    build_seed("esp32s3_contact", tmp_path, 10)
