"""Files of a data folder, class by class: in a fixed order, and none that a link fetches from somewhere else."""

import os
from pathlib import Path

from automcu_ray.core.errors import ConfigError


def class_folders(root: Path) -> list[Path]:
    """Return the folders in `root` by name, but those whose name starts with a dot or an underscore."""
    return sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] not in "._")


def files_below(folder: Path, suffixes: tuple[str, ...], root: Path, *, refused: tuple[str, ...] = ()) -> list[Path]:
    """Return the files with one of these endings (lower case) anywhere below a folder, in order.

    Files that end otherwise are left out; those in `refused` are examples, too, which nobody would miss.

    Raises:
        ConfigError: there is none, a link leads out of `root` or nowhere, one is a pipe or the like, or
            ends as a `refused` one.
    """
    found = []
    for parent, folders, names in os.walk(folder):
        for path in (folder, *(Path(parent, name) for name in (*folders, *names))):
            if path.is_symlink() and not path.exists():
                raise ConfigError(f"{path} is a link to nothing: put the file itself there, or remove the link.")
            if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
                raise ConfigError(f"{path} is a link out of {root}, to {path.resolve()}: put the file itself there.")
        found += [Path(parent, name) for name in names if name.lower().endswith((*suffixes, *refused))]
    for path in found:
        if path.name.lower().endswith(refused):
            raise ConfigError(f"{path}: wanted {', '.join(suffixes)}: convert it, or remove it.")
        if not path.is_file():  # reading a pipe would wait for good
            raise ConfigError(f"{path} is no file, but a pipe, a socket or a device: remove it.")
    if not found:
        raise ConfigError(f"{folder} holds no file that ends in {', '.join(suffixes)}: fill it, or remove it.")
    return sorted(found)
