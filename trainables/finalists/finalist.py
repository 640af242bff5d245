"""Finalists: full training, the toolchain again with trained weights, the board on validation images."""

import contextlib
import dataclasses
import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import ValidationError

from automcu_ray.core.atomic_write import write_whole
from automcu_ray.core.errors import AutoMcuError
from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation, too_slow
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import BoardResult, EpochFigures, Finalist, Quantised, TrainingSummary
from automcu_ray.runtime.config import JailConfig
from automcu_ray.signals.front_end import Samples
from backends.base import Backend
from backends.boards.base import Board
from backends.measured.measuring import refused_by_boards
from backends.toolchain import Toolchain, in_words_of_the_spec
from trainables.datasets.base import Split
from trainables.finalists.board_check import run_on_board
from trainables.finalists.distillation import Teacher
from trainables.finalists.streaming import feed_recording
from trainables.jail.jailed_trainer import JailedTrainer
from trainables.training.checkpoint import Checkpoint
from trainables.training.loop import Epoch
from trainables.training.trainer import CANDIDATE_ERRORS, Trainer, in_words

BOARD_CHECK_IMAGES = 16
SHIPPED, BOARD_ELF = "shipped", "board.elf"  # in a finalist's folder: what the bundle will hold, what the board runs
EPOCH, EPOCHS = "epoch", "epochs.jsonl"  # the number of the last one, for the progress line; what each gave

Trained = tuple[TrainingSummary, DeployedNetwork]


@dataclass(frozen=True)
class FinalistPipeline:
    """What every finalist of a run shares; sent to each worker once. No toolchain: ONNX only. No board: not run.

    `second_opinions` build every finalist that nothing speaks against; what they say decides nothing, but for limits of
    what a board measured. `teacher` is the network whose answers finalists learn from. `recording` is fed to the
    board's stream, where the task has a front end.
    """

    task: Task
    protocol: Protocol
    train_split: Split
    val_split: Split
    toolchain: Toolchain | None
    board: Board | None
    folder: Path
    seed: int
    threads: int = 1
    gpus: float = 1.0
    jail: JailConfig = field(default_factory=JailConfig)
    second_opinions: tuple[Backend, ...] = ()
    teacher: Teacher | None = None
    recording: Samples | None = None

    def qat_epochs(self, candidate: Candidate) -> int:
        """How long a candidate trains on with rounding: only what becomes int8, and is no generated code."""
        return self.protocol.qat_epochs if self.task.precision == "int8" and candidate.structure is not None else 0

    @property
    def first_teacher(self) -> Teacher | None:
        """Who teaches in the float epochs."""
        return self.teacher if self.teacher is not None and self.teacher.from_start else None


def train_float(candidate: Candidate, pipeline: FinalistPipeline) -> float | None:
    """Train one candidate as far as `run_finalist` trains it in float, and leave that to it in the candidate's folder.

    Returns the float validation accuracy, or None where training failed: `run_finalist` will say why.
    """
    torch.set_num_threads(pipeline.threads)
    folder = pipeline.folder / candidate.hash
    folder.mkdir(parents=True, exist_ok=True)
    try:
        training, epochs = _start(candidate, pipeline, folder)
        with contextlib.closing(training):
            epoch = _last(epochs, folder, 0)
            training.save(folder)
    except CANDIDATE_ERRORS:
        return None
    return epoch.val_accuracy


def run_finalist(candidate: Candidate, pipeline: FinalistPipeline) -> Finalist:
    """Take one candidate the whole way but the test set, leaving its files in `<folder>/<hash>/`.

    What goes wrong is the finalist's `reason`; it never ends the run.
    """
    teacher = pipeline.teacher if candidate.structure is not None else None  # generated code learns from nobody
    notes = [f"taught by {teacher.name}"] if teacher is not None else []
    return take_through(candidate, pipeline, lambda folder: _train(candidate, pipeline, folder, notes), notes)


def take_through(
    candidate: Candidate, pipeline: FinalistPipeline, train: Callable[[Path], Trained], notes: list[str]
) -> Finalist:
    """Take what `train` leaves in its folder through toolchain, board and second opinions, as `run_finalist` does."""
    torch.set_num_threads(pipeline.threads)
    folder = pipeline.folder / candidate.hash
    folder.mkdir(parents=True, exist_ok=True)
    training, built = None, Built()
    opinions: tuple[FeasibilityReport, ...] = ()
    try:
        training, deployed = train(folder)
        save_deployed(deployed, folder)
        if pipeline.toolchain is not None:
            built = _build(pipeline.toolchain, pipeline, folder, deployed)
            if built.accuracy is not None:
                training = training.replace(val_accuracy=built.accuracy)
        if not built.reason:
            opinions = tuple(
                _second_opinion(backend, deployed, pipeline.task, folder) for backend in pipeline.second_opinions
            )
        reason = built.reason or refused_by_boards(opinions)
    except (AutoMcuError, *CANDIDATE_ERRORS) as error:
        reason = in_words(error)
    return Finalist(
        number=candidate.number,
        hash=candidate.hash,
        training=training,
        feasibility=built.feasibility,
        board=built.board,
        second_opinions=opinions,
        reason=reason[:500],
        note="; ".join(notes),
        epochs=read_epochs(folder),
    )


class Built(NamedTuple):
    """What the toolchain, and the board where there is one, say of a trained network; `reason` is why it cannot win.

    `accuracy` is that of what ships, on validation images, where it computes otherwise than onnxruntime.
    """

    feasibility: FeasibilityReport | None = None
    accuracy: float | None = None
    board: BoardResult | None = None
    reason: str = ""


def _build(toolchain: Toolchain, pipeline: FinalistPipeline, folder: Path, deployed: DeployedNetwork) -> Built:
    firmware = toolchain.build(deployed, folder / "firmware")
    report, task, val = firmware.report, pipeline.task, pipeline.val_split
    if not report.feasible:
        return Built(report, reason="; ".join(violation.message for violation in report.violations))
    firmware.collect(folder / SHIPPED)
    accuracy = toolchain.backend.accuracy(deployed, task, val.images, val.labels)
    if pipeline.board is None or firmware.board_elf is None:
        return Built(report, accuracy)
    shutil.copy(firmware.board_elf, folder / BOARD_ELF)
    board = run_on_board(pipeline.board, folder / BOARD_ELF, task, deployed, val.images[:BOARD_CHECK_IMAGES])
    if pipeline.recording is not None:
        stream = feed_recording(pipeline.board, folder / BOARD_ELF, task, deployed, pipeline.recording)
        board = board.replace(stream=stream)
    report = report.replace(rung=Rung.BOARD, instructions=board.instructions, stack_used_bytes=board.stack_used_bytes)
    if not board.agrees:
        return Built(report, accuracy, board, f"the board differs from onnxruntime by {board.largest_difference:g}")
    if board.stream is not None and board.stream.bit_equal_windows < board.stream.windows:
        agree = f"{board.stream.bit_equal_windows} of {board.stream.windows} windows agree"
        return Built(report, accuracy, board, f"the board's stream differs: {agree}")
    limit = task.instructions_limit
    if limit is not None and (board.instructions or 0) > limit:  # its rounding may differ from the untrained network's
        report = report.replace(feasible=False, violations=(too_slow("", board.instructions or 0, limit),))
        return Built(report, accuracy, board, report.violations[0].message)
    return Built(report, accuracy, board)


def _second_opinion(backend: Backend, deployed: DeployedNetwork, task: Task, folder: Path) -> FeasibilityReport:
    """Return another backend's report; what breaks there, in whatever way, is its only violation.

    What it leaves of a network that fits ships in its own folder.
    """
    workdir = folder / "second_opinions" / backend.name
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        firmware = backend.build(deployed, task.target, task.constraints, workdir)
        if firmware.report.feasible:
            firmware.collect(folder / SHIPPED / backend.name)
    except Exception as error:  # an opinion that decides nothing must not cost the finalist
        what = str(error) if isinstance(error, AutoMcuError) else f"{type(error).__name__}: {error}"
        broken = Violation(rung=Rung.CONVERT, resource="tool", message=what[:500])
        return FeasibilityReport(feasible=False, backend=backend.name, rung=Rung.CONVERT, violations=(broken,))
    return in_words_of_the_spec(firmware.report, deployed)


def save_deployed(deployed: DeployedNetwork, folder: Path) -> None:
    """Write a deployed network as two ONNX files and a small JSON file, and their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "float32.onnx").write_bytes(deployed.float_onnx)
    (folder / "deployed.onnx").write_bytes(deployed.onnx)
    about = {k: v for k, v in dataclasses.asdict(deployed).items() if not isinstance(v, bytes)}
    (folder / "deployed.json").write_text(json.dumps(about, indent=1))


def load_deployed(folder: Path) -> DeployedNetwork:
    """Read what `save_deployed` wrote."""
    about: dict[str, Any] = json.loads((folder / "deployed.json").read_text())
    about["input_shape"] = tuple(about["input_shape"])
    about["float_onnx"] = (folder / "float32.onnx").read_bytes()
    about["onnx"] = (folder / "deployed.onnx").read_bytes()
    return DeployedNetwork(**about)


def _train(candidate: Candidate, pipeline: FinalistPipeline, folder: Path, notes: list[str]) -> Trained:
    """Train in float, then with rounding as well where that is asked for; add to `notes` what went wrong there."""
    training, epochs = _start(candidate, pipeline, folder)
    with contextlib.closing(training):
        epoch = _last(epochs, folder, 0)
        summary, deployed = training.finish(epoch)
        checkpoint = training.save(folder)
        if pipeline.qat_epochs(candidate):
            try:
                taught_by = pipeline.teacher.network(pipeline.task) if pipeline.teacher else None
                more = training.start_rounded(_checkpoint("qat", candidate, pipeline, folder), taught_by)
                _last(more, folder, pipeline.protocol.epochs, rounded=True)
                summary, deployed = _better((summary, deployed), training.finish(epoch), pipeline, folder)
            except CANDIDATE_ERRORS as error:
                # What was trained before, rounded by calibration alone, still stands.
                notes.append(f"training with rounding failed: {in_words(error)}")
    return summary.replace(checkpoint=str(checkpoint)), deployed


def _start(candidate: Candidate, pipeline: FinalistPipeline, folder: Path) -> tuple[Trainer, Iterator[Epoch]]:
    """Return a training and its epochs; those of generated code begin anew after an interruption."""
    if candidate.structure is None:
        shares: Any = {"threads": pipeline.threads, "gpus": pipeline.gpus}
        jailed = JailedTrainer(
            pipeline.task, pipeline.protocol, pipeline.train_split, pipeline.val_split, pipeline.jail, **shares
        )
        return jailed, jailed.start(candidate.code, seed=pipeline.seed)
    training = Trainer(pipeline.task, pipeline.protocol, pipeline.train_split, pipeline.val_split, gpus=pipeline.gpus)
    checkpoint = _checkpoint("float", candidate, pipeline, folder)
    teacher = pipeline.first_teacher.network(pipeline.task) if pipeline.first_teacher else None
    return training, training.start(candidate.structure, seed=pipeline.seed, checkpoint=checkpoint, teacher=teacher)


def _checkpoint(phase: str, candidate: Candidate, pipeline: FinalistPipeline, folder: Path) -> Checkpoint:
    what = f"{phase} {candidate.trial_config()} {pipeline.task.input_shape} {pipeline.task.num_classes}"
    images = len(pipeline.train_split)
    how = f"{pipeline.protocol.model_dump_json()} seed {pipeline.seed} {pipeline.task.dataset} {images}"
    teacher = pipeline.teacher if phase == "qat" else pipeline.first_teacher
    by = f"taught by {teacher.name}" if teacher is not None else ""
    return Checkpoint(folder / f"{phase}.checkpoint", f"{what} {how} {by}")


def _last(epochs: Iterator[Epoch], folder: Path, before: int, *, rounded: bool = False) -> Epoch:
    """Train to the end and return the last epoch, leaving each, after those before, for the screen and the report."""
    for epoch in epochs:
        loss = epoch.loss if math.isfinite(epoch.loss) else None
        number = before + epoch.number
        row = EpochFigures(epoch=number, val_accuracy=epoch.val_accuracy, train_loss=loss, rounded=rounded)
        with (folder / EPOCHS).open("a") as file:
            file.write(row.model_dump_json(exclude_defaults=True) + "\n")
        write_whole(folder / EPOCH, str(number).encode())
    return epoch


def read_epochs(folder: Path) -> tuple[EpochFigures, ...]:
    """Return what the epochs of a finalist gave; of one that was repeated after an interruption, the newest word."""
    found: list[EpochFigures] = []
    for line in (folder / EPOCHS).read_text().splitlines() if (folder / EPOCHS).exists() else ():
        with contextlib.suppress(ValidationError):  # cut by a kill
            row = EpochFigures.model_validate_json(line)
            found = [one for one in found if one.epoch < row.epoch] + [row]
    return tuple(found)


def _better(ptq: Trained, qat: Trained, pipeline: FinalistPipeline, folder: Path) -> Trained:
    """Return the one of two ways to int8 that validation prefers, the shorter one of equals, and keep both files.

    The float accuracy stays that of the float network; the seconds are those of both trainings.
    """
    both: dict[Literal["ptq", "qat"], Trained] = {"ptq": ptq, "qat": qat}
    learning, val = pipeline.task.learning, pipeline.val_split
    ways = []
    for method, (summary, deployed) in both.items():
        save_deployed(deployed, folder / method)
        as_float = deployed.as_float.score(learning, val.images, val.labels)
        ways.append(Quantised(method=method, val_accuracy=summary.val_accuracy, val_accuracy_float=as_float))
    first, other = ways if ways[0].val_accuracy >= ways[1].val_accuracy else ways[::-1]
    chosen = ptq if first.method == "ptq" else qat
    about = {"val_accuracy": first.val_accuracy, "metric_value": chosen[0].metric_value}
    summary = ptq[0].replace(**about, quantised=(first, other), seconds=qat[0].seconds)
    return summary, chosen[1]
