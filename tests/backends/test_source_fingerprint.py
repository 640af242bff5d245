"""What a backend's version covers: a change of any file that decides must change it."""

import shutil
from pathlib import Path

import pytest

from automcu_ray.networks import cell, cell_network
from automcu_ray.sizing import repair
from backends import BACKENDS
from backends.c_qemu.backend import PACKAGES
from backends.source_fingerprint import SHARED, digest


def test_every_source_in_a_folder_counts_and_caches_do_not(tmp_path: Path) -> None:
    def changed(name: str, text: str) -> str:
        digest.cache_clear()
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        return digest(tmp_path)

    first = changed("a.py", "1")
    assert changed("deep/b.c", "2") not in (first, changed("deep/b.c", "3"))
    assert changed("__pycache__/a.pyc", "4") == changed("__pycache__/a.pyc", "5")


def test_what_moves_from_one_file_to_the_next_is_a_change(tmp_path: Path) -> None:
    for name, texts in {"one": ("ab", "c"), "other": ("a", "bc")}.items():
        (tmp_path / name).mkdir()
        for file, text in zip(("x.py", "y.py"), texts, strict=True):
            (tmp_path / name / file).write_text(text)
    assert digest(tmp_path / "one") != digest(tmp_path / "other")


def test_a_module_is_its_file() -> None:
    assert digest(repair) == digest(Path(repair.__file__)) and repair in SHARED


def test_what_builds_and_rewrites_a_network_counts() -> None:
    assert {cell, cell_network} <= set(SHARED) and "onnx" in PACKAGES


@pytest.mark.parametrize("name", sorted({entry.split(".")[1] for entry in BACKENDS.values()}))
def test_every_file_of_a_package_is_part_of_its_digest(name: str, tmp_path: Path) -> None:
    package = Path(__file__).parents[2] / "backends" / name
    for file in [path for path in package.rglob("*") if path.suffix in (".py", ".c", ".h", ".ld")]:
        copy = shutil.copytree(package, tmp_path / "copy")
        with (copy / file.relative_to(package)).open("a") as source:
            source.write("\n")
        digest.cache_clear()
        assert digest(copy) != digest(package), file
        shutil.rmtree(copy)
