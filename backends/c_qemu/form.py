"""Which C a network becomes: fast or small, whole or with its first layers in patches; told in a report's notes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from backends.c_qemu.patches import Stage

Code = Literal["fast", "lean", "narrow", "small"]
CODE_NOTES: dict[Code, str] = {
    "lean": "The C takes one pixel at a time: the faster kernels have no room.",
    "narrow": "The C has one kernel for all convolutions: the faster ones have no room.",
    "small": "The C is optimised for size.",
}
_ROOM_NOTE = "Faster kernels use what the RAM limit leaves: the arena may take {} bytes."
_ROOM_SAID = re.compile(re.escape(_ROOM_NOTE).replace(r"\{\}", r"(\d+)"))
STEPS_NOTE = "The C goes by steps: its states begin anew where a window does."


@dataclass(frozen=True)
class Form:
    """A form of a network's C at int8.

    `code`, in the order of bytes, the fewest instructions first: `fast` gives each layer its fastest kernel,
    `lean` those that take one pixel at a time, `narrow` one kernel for all convolutions, `small` that one in plain C.

    `stage`: what is computed patch by patch.

    `arena_bytes`: the arena may have so many for faster kernels, even where the network needs fewer.

    `steps`: a recurrent network keeps its states between calls of `net_step`, one for each window that is under way.
    """

    code: Code = "fast"
    stage: Stage | None = None
    steps: bool = False
    arena_bytes: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report says of it; nothing of the usual form."""
        code = [CODE_NOTES[self.code]] if self.code in CODE_NOTES else []
        stage = [self.stage.note] if self.stage else []
        room = [_ROOM_NOTE.format(self.arena_bytes)] if self.arena_bytes else []
        return (*code, *stage, *room, *([STEPS_NOTE] if self.steps else []))

    @classmethod
    def of(cls, notes: Sequence[str]) -> "Form":
        """Return the form that a report speaks of."""
        code: Code = next((name for name, note in CODE_NOTES.items() if note in notes), "fast")
        room = next((int(found[1]) for found in map(_ROOM_SAID.fullmatch, notes) if found), 0)
        return cls(code, Stage.of(notes), STEPS_NOTE in notes, room)


USUAL = Form()
