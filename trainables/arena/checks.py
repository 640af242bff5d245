"""The checks of one artifact, cheapest first, up to the first no: see `CHECKS`."""

import hashlib
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from automcu_ray.core.errors import BoardError, ToolchainError
from automcu_ray.problem.arena import ArenaTask
from automcu_ray.problem.artifact import check_files
from automcu_ray.records.attempt import Check, CheckName, Figures, Observation
from backends.arena.build import BOOT_DELAY_TICKS, Built, build
from backends.arena.protocol import Answer, FirmwareFault, Garbled, Session
from backends.boards.base import Board
from backends.instruments.recording import Recorder, Recording, unmeasured
from trainables.arena.recording import objective, over_ceilings
from trainables.arena.workload import Asked, Workload, draw

SERIAL_LINES, SERIAL_CHARS = 24, 160
RETRIES = 2  # of one garbled line
SEED_BITS = 62


class Refused(Exception):
    """A check said no."""


@dataclass
class Examination:
    """One artifact on its way through the checks; `observation` is what came of it, so far."""

    task: ArenaTask
    workload: Workload
    board: Board
    record: Recorder = unmeasured
    checks: list[Check] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)
    log: list[str] = field(default_factory=list)
    built: Built | None = None
    objective: float | None = None
    input_seed: int = field(default_factory=lambda: secrets.randbits(SEED_BITS))

    def observe(self, number: int, artifact: Path, workdir: Path) -> Observation:
        """Return the observation of an artifact, whatever it does.

        Raises:
            BoardError: the board, not the artifact, did not do as agreed: whoever knows boards decides.
            InstrumentError: the instrument beside it did not.
        """
        started_s = time.monotonic()
        try:
            self._examine(artifact, workdir)
        except Refused:
            pass
        return Observation(
            attempt=number,
            checks=tuple(self.checks),
            figures=self.figures,
            objective=self.objective,
            sha256=self.built.sha256 if self.built else "",
            input_seed=self.input_seed,
            serial=self.said,
            seconds=time.monotonic() - started_s,
        )

    @property
    def said(self) -> tuple[str, ...]:
        """The last lines of the serial port."""
        return tuple(readable(line) for line in self.log[-SERIAL_LINES:])

    def _examine(self, artifact: Path, workdir: Path) -> None:
        with self._check("files"):
            check_files(artifact)
        with self._check("build"):
            self.built = built = build(
                artifact,
                workdir,
                target=self.task.target,
                constraints=self.task.constraints,
                input_bytes=self.workload.input_bytes,
                output_bytes=self.workload.output_bytes,
            )
        self.figures = Figures(ram_bytes=built.ram_bytes, flash_bytes=built.flash_bytes)
        with self._check("fit"):
            if built.over:
                raise ToolchainError(
                    "; ".join(f"{region} is exceeded by {n} bytes" for region, n in built.over.items())
                )
        assert built.elf is not None
        asked = draw(self.workload, self.task.feasibility, self.input_seed)
        answers, recording = self._talk(built, asked)
        self._judge(asked, answers, recording)

    def _talk(self, built: Built, asked: Asked) -> tuple[list[Answer], Recording]:
        """Boot the very file that was built, and ask it everything; what it says is kept."""
        assert built.elf is not None
        if hashlib.sha256(built.elf.read_bytes()).hexdigest() != built.sha256:
            raise BoardError(f"{built.elf} should be the firmware that was built, and has changed.")
        deadline_s = time.monotonic() + self.task.feasibility.run_seconds
        encoded = self.workload.deployed.encode(asked.images)
        with self.board.connect(built.elf, self.task.target) as port:
            session = Session(port, self.workload.input_bytes, self.workload.output_bytes, BOOT_DELAY_TICKS, self.log)
            session.greet()
            self.checks.append(Check(name="flash", passed=True))
            with self._check("run"), self.record() as recording:
                answers = [self._ask(session, image.tobytes(), deadline_s) for image in encoded]
        return answers, recording

    def _ask(self, session: Session, payload: bytes, deadline_s: float) -> Answer:
        for tries_left in range(RETRIES, -1, -1):
            if time.monotonic() > deadline_s:
                raise ToolchainError(f"all inputs together should take {self.task.feasibility.run_seconds:g} s at most")
            try:
                return session.ask(payload)
            except Garbled:
                if not tries_left:
                    raise
        raise AssertionError

    def _judge(self, asked: Asked, answers: list[Answer], recording: Recording) -> None:
        dtype, classes = asked.expected.dtype, asked.expected.shape[1]
        outputs = np.frombuffer(b"".join(one.output for one in answers), dtype).reshape(len(answers), classes)
        ticks = max(one.ticks for one in answers)
        labels = asked.labels
        accuracy = float(np.mean(outputs[: len(labels)].argmax(axis=1) == labels)) if len(labels) else None
        measured = recording.figures(self.figures, len(answers))
        self.figures = measured.replace(
            instructions=self.board.instructions(ticks, self.task.target),
            accuracy=accuracy,
            runs=len(answers),
            boot_to_last_ticks=answers[-1].stamp,
        )
        goal = self.task.feasibility
        with self._check("behaviour"):
            wrong = int((outputs != asked.expected).any(axis=1).sum())
            if goal.unchanged and wrong:
                raise ToolchainError(f"{wrong} of {len(answers)} outputs differ from the seed network's")
            if goal.min_accuracy is not None and (accuracy is None or accuracy < goal.min_accuracy):
                raise ToolchainError(f"accuracy is {accuracy or 0:.4f}, the floor {goal.min_accuracy:.4f}")
        if self.task.quantities:
            with self._check("ceiling"):
                if over := over_ceilings(self.task, self.figures):
                    raise ToolchainError(over)
        self.objective = objective(self.task, self.figures)
        if self.objective is None:
            raise BoardError(f"board {self.board.name!r} cannot measure {self.task.objective}.")

    @contextmanager
    def _check(self, name: CheckName) -> Iterator[None]:
        """Note whether what is inside passes; a no ends the examination."""
        try:
            yield
        except (ToolchainError, FirmwareFault) as error:
            self.checks.append(Check(name=name, passed=False, detail=readable(str(error), 2000)))
            raise Refused from error
        self.checks.append(Check(name=name, passed=True))


def readable(text: str, most: int = SERIAL_CHARS) -> str:
    """Return text of a stranger's program without control characters, and no longer than `most`."""
    clean = "".join(one if one.isprintable() or one == "\n" else "?" for one in text)
    return clean if len(clean) <= most else f"{clean[: most - 3]}..."
