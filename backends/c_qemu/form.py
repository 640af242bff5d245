"""Which C a network becomes: fast or small, whole or with its first layers in patches; told in a report's notes."""

from collections.abc import Sequence
from dataclasses import dataclass

from backends.c_qemu.patches import Stage

SMALL_NOTE = "The C is optimised for size."
STEPS_NOTE = "The C goes by steps: its states begin anew where a window does."


@dataclass(frozen=True)
class Form:
    """A form of a network's C at int8.

    `small`: the fewest bytes of code; `stage`: what is computed patch by patch.

    `steps`: a recurrent network keeps its states between calls of `net_step`, one for each window that is under way.
    """

    small: bool = False
    stage: Stage | None = None
    steps: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report says of it; nothing of the usual form."""
        stage = [self.stage.note] if self.stage else []
        return (*([SMALL_NOTE] if self.small else []), *stage, *([STEPS_NOTE] if self.steps else []))

    @classmethod
    def of(cls, notes: Sequence[str]) -> "Form":
        """Return the form that a report speaks of."""
        return cls(SMALL_NOTE in notes, Stage.of(notes), STEPS_NOTE in notes)


USUAL = Form()
