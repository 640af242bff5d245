"""Boards as data, leased one at a time: a file lock says who has one, so that a killed process holds none.

The map's fields are those of Zephyr twister's hardware map. How many trials run at once is Ray's affair (a resource
`board` for each); which board one gets, and that nobody else on this machine has it, is decided here.
"""

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from automcu_ray.core.atomic_write import write_whole
from automcu_ray.core.errors import BoardError
from automcu_ray.core.folder_lock import hold
from automcu_ray.core.models import FrozenModel

MOST_FAULTS = 3  # one after the other, of a board; then it is in quarantine
POLL_S = 0.05
FAULTS = "faults.json"


class BoardEntry(FrozenModel):
    """One board of the map: its id, what it is, and how it is reached.

    `runner` is qemu, a flasher of `flashers.py`, or none (the firmware is there already). `serial` is a device, or a
    URL of pyserial's, `probe_id` the debug probe's, `part` and `config` what the flasher calls the chip, `fixtures`
    what hangs on it (ppk2, ...). `instrument` is the one of them that measures while it runs (of INSTRUMENTS, or a
    plugin's), with its own options. `hub` and `port` say which port of which USB hub feeds it, as uhubctl tells them:
    with these its power can be cycled.
    """

    id: str = Field(max_length=60)
    product: str = ""
    platform: str = ""
    runner: str = "qemu"
    serial: str | None = None
    baud: int = Field(default=115200, gt=0)
    probe_id: str | None = None
    part: str | None = None
    config: str | None = None
    flash_timeout_s: float = Field(default=60, gt=0)
    fixtures: tuple[str, ...] = ()
    instrument: str | None = None
    instrument_options: dict[str, Any] = Field(default_factory=dict)
    connected: bool = True
    hub: str | None = Field(default=None, pattern=r"^\d+(-\d+(\.\d+)*)?$")
    port: int | None = Field(default=None, ge=1, le=127)

    @model_validator(mode="after")
    def _whole(self) -> "BoardEntry":
        if (self.hub is None) != (self.port is None):
            raise ValueError("hub and port name a USB port together: give both, or none")
        return self

    @field_validator("id")
    @classmethod
    def _plain(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", value):
            raise ValueError("a board's id has letters, digits, '-', '_' and '.'")
        return value


def emulated(count: int) -> tuple[BoardEntry, ...]:
    """Return a map of so many emulated boards."""
    return tuple(BoardEntry(id=f"qemu-{number}", product="QEMU", runner="qemu") for number in range(count))


class Pool:
    """The boards of a map; `folder` holds a lock and a list of faults for each.

    Whoever shares a folder shares the boards: other workers, and other runs.
    """

    def __init__(self, boards: Sequence[BoardEntry], folder: Path) -> None:
        self.boards, self.folder = tuple(board for board in boards if board.connected), folder
        for board in self.boards:
            (folder / board.id).mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def lease(self, timeout_s: float) -> Iterator[BoardEntry]:
        """Wait for a board that works, and have it alone.

        Raises:
            BoardError: none became free in time, or all are in quarantine.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            for board in self.usable():
                try:
                    held = hold(self.folder / board.id)
                except BlockingIOError:
                    continue
                try:
                    yield board
                finally:
                    os.close(held)
                return
            if not self.usable():
                faults = "; ".join(f"{board.id}: {self.faults(board.id)[-1]}" for board in self.boards)
                raise BoardError(f"no board is left: {faults or 'the map has none that is connected'}. See to them, "
                                 f"then remove {self.folder}/*/{FAULTS}.")  # fmt: skip
            if time.monotonic() > deadline_s:
                raise BoardError(f"no board became free within {timeout_s:g} s: {len(self.boards)} are in use.")
            time.sleep(POLL_S)

    def usable(self) -> list[BoardEntry]:
        """Return the boards that are not in quarantine."""
        return [board for board in self.boards if len(self.faults(board.id)) < MOST_FAULTS]

    def faults(self, board: str) -> list[str]:
        """Return what went wrong with a board since it last worked."""
        try:
            return [str(fault) for fault in json.loads((self.folder / board / FAULTS).read_text())]
        except (OSError, ValueError):
            return []

    def last_chance(self, board: str) -> bool:
        """Whether the next fault of a board puts it in quarantine."""
        return len(self.faults(board)) >= MOST_FAULTS - 1

    def works(self, board: str) -> None:
        """Note that a board did its work: earlier faults are forgotten."""
        (self.folder / board / FAULTS).unlink(missing_ok=True)

    def failed(self, board: str, fault: str) -> None:
        """Note a fault of a board that is leased; the third in a row puts it in quarantine."""
        write_whole(self.folder / board / FAULTS, json.dumps([*self.faults(board), fault[:300]]).encode())
