"""Which files of a folder are examples: none from elsewhere, none left out unsaid, none that would be waited for."""

import os
from pathlib import Path

import pytest

from automcu_ray.errors import ConfigError
from trainables.datasets.files import files_below


def found(folder: Path) -> list[str]:
    paths = files_below(folder, (".png", ".jpg"), folder, refused=(".gif", ".tif"))
    return [path.relative_to(folder).as_posix() for path in paths]


def test_files_of_all_depths_in_order_without_those_of_other_endings(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "folder.png").mkdir()
    for name in ("b.png", "A.JPG", "deep/c.jpg", "notes.txt", "png"):
        (tmp_path / name).touch()
    assert found(tmp_path) == ["A.JPG", "b.png", "deep/c.jpg"]


@pytest.mark.parametrize("target", ["nowhere.png", "link.png"])
def test_links_to_nothing(target: str, tmp_path: Path) -> None:
    (tmp_path / "link.png").symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match=r"link\.png is a link to nothing"):
        found(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(ConfigError, match=r"pipe\.png is no file"):
        found(tmp_path)


def test_an_example_of_a_kind_that_is_not_read_is_not_left_out_unsaid(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    (tmp_path / "b.TIF").touch()
    with pytest.raises(ConfigError, match=r"b\.TIF: wanted \.png, \.jpg: convert it, or remove it"):
        found(tmp_path)
