"""Boards: where firmware runs, emulated or on a desk."""

from typing import Any

from automcu_ray import plugins

BOARDS = {
    "qemu": "backends.boards.qemu:QemuBoard",
}


def load(name: str) -> Any:
    """Return the board class of that name.

    Raises:
        ConfigError: no such board; the nearest one is offered.
    """
    return plugins.load("board", BOARDS, name)
