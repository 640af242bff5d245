"""Boards: where firmware runs, emulated or on a desk."""

from typing import TYPE_CHECKING

from automcu_ray.runtime import plugins

if TYPE_CHECKING:
    from backends.boards.base import Board
    from backends.boards.pool import BoardEntry

BOARDS = {
    "qemu": "backends.boards.qemu:QemuBoard",
}


def make_board(entry: "BoardEntry", timeout_s: float) -> "Board":
    """Return the board that an entry of a hardware map tells of; a read waits for `timeout_s` at most.

    Raises:
        ConfigError: no such runner.
    """
    board: Board = plugins.load("board", BOARDS, entry.runner)(timeout_s=timeout_s)
    return board
