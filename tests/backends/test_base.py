"""What every backend shares: firmware that ships, and what is foreseen for other planners."""

from pathlib import Path

import pytest

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport, Rung
from automcu_ray.runtime import plugins
from automcu_ray.runtime.config_files import CONFIGS, read_yaml
from backends import BACKENDS
from backends.base import Firmware
from backends.boards import BOARDS


@pytest.mark.parametrize(
    ("kind", "name"), [*(("backend", name) for name in BACKENDS), *(("board", name) for name in BOARDS)]
)
def test_the_tables_know_what_they_name(kind: str, name: str) -> None:
    assert plugins.load(kind, BACKENDS if kind == "backend" else BOARDS, name).name == name
    assert kind == "board" or read_yaml(CONFIGS / "backend" / f"{name}.yaml")["name"] == name


def firmware(*sources: Path, elf: Path | None = None) -> Firmware:
    return Firmware(FeasibilityReport(feasible=True, backend="any", rung=Rung.VENDOR), elf, sources, sources[0].parent)


def test_sources_folders_and_elf_are_copied(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "net.h").write_text("int net;")
    (tmp_path / "net.elf").write_bytes(b"elf")
    firmware(tmp_path / "project", elf=tmp_path / "net.elf").collect(tmp_path / "shipped")
    assert (tmp_path / "shipped" / "project" / "net.h").read_text() == "int net;"
    assert (tmp_path / "shipped" / "firmware.elf").read_bytes() == b"elf"


@pytest.mark.parametrize("place", ["net.h", "project/deep/net.h", "net.elf"])
@pytest.mark.parametrize("points_at", ["secret", "nowhere"])
def test_a_link_among_what_ships_is_an_error_and_nothing_is_copied(place: str, points_at: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a key")
    (tmp_path / "project" / "deep").mkdir(parents=True)
    (tmp_path / place).symlink_to(tmp_path / points_at)
    made = firmware(tmp_path / "project", tmp_path / place)
    if place.endswith(".elf"):
        made = firmware(tmp_path / "project", elf=tmp_path / place)
    with pytest.raises(ToolchainError, match=f"found a link: {Path(place).name}"):
        made.collect(tmp_path / "shipped")
    assert not (tmp_path / "shipped").exists()
