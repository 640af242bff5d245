"""What `pip install` brings: every file of the packages, the configurations, and the console command."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("automcu_ray", "searchers", "trainables", "backends", "configs")


@pytest.mark.slow
def test_the_wheel_holds_all_files_of_the_packages_and_no_others(tmp_path: Path) -> None:
    pytest.importorskip("build")
    argv = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(argv, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
        entries = archive.read(next(name for name in archive.namelist() if name.endswith("entry_points.txt"))).decode()
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    wanted = {str(path.relative_to(ROOT)) for path in paths if "__pycache__" not in path.parts}
    assert found == wanted
    assert "automcu = automcu_ray.commands.main:main" in entries
