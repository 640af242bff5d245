"""Which files of a folder are examples: none from elsewhere, none left out unsaid, none that would be waited for."""

import os
from pathlib import Path

import pytest

from automcu_ray.core.errors import ConfigError
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


def test_a_link_inside_the_root_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    (tmp_path / "link.png").symlink_to(tmp_path / "a.png")
    assert found(tmp_path) == ["a.png", "link.png"]


@pytest.mark.parametrize("target", ["nowhere.png", "link.png"])
def test_links_to_nothing(target: str, tmp_path: Path) -> None:
    (tmp_path / "link.png").symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match=r"link\.png is a link to nothing"):
        found(tmp_path)


@pytest.mark.parametrize(("link", "target"), [("a/link.png", "secret.png"), ("a/link.png", "."), ("a", ".")])
def test_links_out_of_the_root(link: str, target: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.png").touch()
    path = tmp_path / "root" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "elsewhere" / target)
    with pytest.raises(ConfigError, match=rf"{link} is a link out of .*root, to .*elsewhere"):
        files_below(tmp_path / "root" / "a", (".png",), tmp_path / "root")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(ConfigError, match=r"pipe\.png is no file"):
        found(tmp_path)
