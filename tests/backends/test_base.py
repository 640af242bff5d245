"""What every backend shares: firmware that ships, and what is foreseen for other planners."""

from pathlib import Path

import pytest

from automcu_ray.errors import ToolchainError
from automcu_ray.feasibility import FeasibilityReport, Rung
from backends.base import Firmware


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
