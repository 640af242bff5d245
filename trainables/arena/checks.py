"""The checks of one artifact, cheapest first, up to the first no: see `CHECKS`."""

import functools
import hashlib
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from automcu_ray.core.errors import BoardError, ToolchainError
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.arena import ArenaTask
from automcu_ray.problem.artifact import check_files, read_network
from automcu_ray.records.attempt import Check, CheckName, Figures, Observation
from backends.arena.build import Built
from backends.arena.protocol import Answer, FirmwareFault, Garbled, Session
from backends.arena.rigs import ArenaRig, rig_of
from backends.arena.stm32n6 import Stm32N6Rig
from backends.boards.base import Board
from backends.boards.pool import BoardEntry
from backends.instruments.recording import Recorder, Recording, unmeasured
from trainables.arena.recording import objective, over_ceilings
from trainables.arena.workload import Asked, Workload, draw, input_bytes, trained
from trainables.training.trainer import CANDIDATE_ERRORS, in_words

SERIAL_LINES, SERIAL_CHARS = 24, 160
RETRIES = 2  # of one garbled line
SEED_BITS = 62
WAKE_S = 0.05  # between the bytes that wake a sleeping chip and the input


class Refused(Exception):
    """A check said no."""


@dataclass
class Examination:
    """One artifact on its way through the checks; `observation` is what came of it, so far."""

    task: ArenaTask
    workload: Workload
    board: Board
    record: Recorder = unmeasured
    entry: BoardEntry | None = None
    checks: list[Check] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)
    log: list[str] = field(default_factory=list)
    built: Built | None = None
    objective: float | None = None
    input_seed: int = field(default_factory=lambda: secrets.randbits(SEED_BITS))

    @functools.cached_property
    def rig(self) -> ArenaRig:
        """How the task's artifacts are built."""
        return rig_of(self.task)

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
            check_files(artifact, self.task.artifact)
        network = self._train(artifact) if self.task.artifact == "network" else self.workload.seed
        asked = draw(self.workload, self.task.feasibility, self.input_seed)
        if not self.rig.talks:
            self._judge(asked, network, *self._ask_vendor(network, asked, workdir))
            return
        with self._check("build"):
            if self.task.artifact == "network":
                self.rig.write_seed(network, workdir / "network", workdir / "tools")
                artifact, workdir = workdir / "network", workdir / "project"
            sizes = input_bytes(network), network.num_classes * self.rig.output_type(network).itemsize
            self.built = built = self.rig.build(artifact, workdir, *sizes)
        self.figures = Figures(ram_bytes=built.ram_bytes, flash_bytes=built.flash_bytes)
        with self._check("fit"):
            if built.over:
                raise ToolchainError(
                    "; ".join(f"{region} is exceeded by {n} bytes" for region, n in built.over.items())
                )
        answers, recording = self._talk(built, network.encode(asked.images), sizes)
        raw = b"".join(one.output for one in answers)
        outputs = np.frombuffer(raw, self.rig.output_type(network)).reshape(len(answers), network.num_classes)
        ticks = max(one.ticks for one in answers)
        self.figures = self.figures.replace(
            instructions=self.board.instructions(ticks, self.task.target), boot_to_last_ticks=answers[-1].stamp
        )
        self._judge(asked, network, outputs, recording)

    def _train(self, artifact: Path) -> DeployedNetwork:
        """Train the network that an artifact is, once, on what the agent may see; held-out images stay unseen."""
        with self._check("train"):
            asked, train = read_network(artifact), self.workload.train
            try:
                return trained(self.task, asked.network, asked.training, train, train, seed=self.task.workload.seed)
            except CANDIDATE_ERRORS as error:
                raise ToolchainError(in_words(error)) from error
        raise AssertionError

    def _ask_vendor(self, network: DeployedNetwork, asked: Asked, workdir: Path) -> tuple[npt.NDArray[Any], Recording]:
        """Let the vendor's own firmware and tool, which talk among themselves, answer for a network."""
        rig = self.rig
        assert isinstance(rig, Stm32N6Rig) and self.entry is not None
        with self._check("build"):
            tool = rig.generate(network, workdir)
        with self.record() as recording:
            outputs = rig.answers(tool, self.entry, network, network.encode(asked.images), workdir)
        self.checks += [Check(name="flash", passed=True), Check(name="run", passed=True)]
        return outputs, recording

    def _talk(self, built: Built, encoded: npt.NDArray[Any], sizes: tuple[int, int]) -> tuple[list[Answer], Recording]:
        """Boot the very file that was built, and ask it everything; what it says is kept."""
        assert built.elf is not None
        if hashlib.sha256((built.hashed or built.elf).read_bytes()).hexdigest() != built.sha256:
            raise BoardError(f"{built.elf} should be the firmware that was built, and has changed.")
        goal, rig = self.task.feasibility, self.rig
        with self.board.connect(built.elf, self.task.target) as port:
            about: dict[str, Any] = {"preamble_lines": rig.preamble_lines}
            session = Session(port, *sizes, rig.delay_ticks, self.log, **about)
            session.greet()
            self.checks.append(Check(name="flash", passed=True))
            deadline_s = time.monotonic() + goal.run_seconds
            with self._check("run"), self.record() as recording:
                answers: list[Answer] = []
                for image in encoded:
                    if goal.idle_seconds and answers:
                        time.sleep(goal.idle_seconds)
                        session.wake()
                        time.sleep(WAKE_S)
                    answers.append(self._ask(session, image.tobytes(), deadline_s))
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

    def _judge(self, asked: Asked, network: DeployedNetwork, outputs: npt.NDArray[Any], recording: Recording) -> None:
        labels, goal = asked.labels, self.task.feasibility
        accuracy = float(np.mean(outputs[: len(labels)].argmax(axis=1) == labels)) if len(labels) else None
        measured = recording.figures(self.figures, len(outputs))
        self.figures = measured.replace(accuracy=accuracy, runs=len(outputs))
        with self._check("behaviour"):
            expected = self.rig.reference(network, asked.images) if goal.unchanged else outputs
            if wrong := int((outputs != expected).any(axis=1).sum()):
                raise ToolchainError(f"{wrong} of {len(outputs)} outputs differ from the seed network's")
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
