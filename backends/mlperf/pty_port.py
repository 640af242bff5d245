"""A board behind a pseudo terminal: a program that opens a serial device finds the firmware there."""

import os
import select
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from automcu_ray.core.errors import BoardError
from automcu_ray.problem.target import McuTarget
from backends.boards.base import Board

READY = b"m-ready\r\n"
_LINE_BYTES, _CHUNK_BYTES, _POLL_S = 1 << 12, 1 << 12, 0.1


@contextmanager
def pty_of(board: Board, elf: Path, target: McuTarget) -> Iterator[str]:
    """Start a firmware of MLPerf's protocol; yield the path of a terminal that is its serial port from then on.

    What it says when it boots is read here: who opens a real board's port later does not see it either.

    Raises:
        BoardError: it does not say that it is ready.
    """
    with board.connect(elf, target) as port:
        said = bytes(port.read_until(READY, _LINE_BYTES))
        if not said.endswith(READY):
            raise BoardError(f"the firmware should say {READY!r} when it has booted, found {said[-80:]!r}.")
        ours, theirs = os.openpty()
        ended = threading.Event()
        carrier = threading.Thread(target=_carry, args=(ours, cast(IO[bytes], port).fileno(), ended), daemon=True)
        try:
            tty.setraw(theirs)
            carrier.start()
            yield os.ttyname(theirs)
        finally:
            ended.set()
            carrier.join()
            os.close(ours)
            os.close(theirs)


def _carry(ours: int, port: int, ended: threading.Event) -> None:
    """Carry bytes both ways until somebody ends it, or the board does."""
    other = {ours: port, port: ours}
    while not ended.is_set():
        for source in select.select([ours, port], [], [], _POLL_S)[0]:
            data = os.read(source, _CHUNK_BYTES)
            if not data:
                return
            while data and not ended.is_set():
                if select.select([], [other[source]], [], _POLL_S)[1]:
                    data = data[os.write(other[source], data) :]
