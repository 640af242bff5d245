"""Boards: where firmware runs, emulated or on a desk."""

from typing import TYPE_CHECKING

from automcu_ray.runtime import plugins

if TYPE_CHECKING:
    from backends.boards.base import Board
    from backends.boards.pool import BoardEntry

BOARDS = {
    "qemu": "backends.boards.qemu:QemuBoard",
    "serial": "backends.boards.serial_port:SerialBoard",
}


def make_board(entry: "BoardEntry", timeout_s: float) -> "Board":
    """Return the board that an entry of a hardware map tells of; a read waits for `timeout_s` at most.

    Runners other than qemu write to a board on a serial port.
    """
    if entry.runner == "qemu":
        emulated: Board = plugins.load("board", BOARDS, "qemu")(timeout_s=timeout_s)
        return emulated
    board: Board = plugins.load("board", BOARDS, "serial")(entry=entry, timeout_s=timeout_s)
    return board
