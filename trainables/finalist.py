"""Finalists: full training, the toolchain again with trained weights, the board on validation images."""

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from automcu_ray.config import JailConfig
from automcu_ray.errors import AutoMcuError, BoardError
from automcu_ray.export import DeployedNetwork
from automcu_ray.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.network import Network
from automcu_ray.protocol import Protocol
from automcu_ray.record import BoardResult, Candidate, Finalist, Quantised, TrainingSummary
from automcu_ray.task import Task
from automcu_ray.whole_file import write_whole
from backends.actor import Toolchain, in_words_of_the_spec
from backends.base import Backend
from backends.boards.base import Board
from trainables.checkpoint import Checkpoint
from trainables.code_job import CodeJob
from trainables.datasets.base import Images, Split
from trainables.job import CANDIDATE_ERRORS, TrainingJob, in_words
from trainables.loop import Epoch
from trainables.teacher import Teacher

BOARD_CHECK_IMAGES = 16
SHIPPED, BOARD_ELF = "shipped", "board.elf"  # in a finalist's folder: what the bundle will hold, what the board runs
EPOCH = "epoch"  # the number of the last epoch, for the progress line
FLOAT32_ROUNDING = 1e-4  # relative to the largest output; 1e-7 is the largest seen, a wrong layer is off by far more

Trained = tuple[TrainingSummary, DeployedNetwork]


@dataclass(frozen=True)
class FinalistJob:
    """What every finalist of a run shares; sent to each worker once. No toolchain: ONNX only. No board: not run.

    `second_opinions` build every finalist that nothing speaks against; what they say stands beside the toolchain's
    figures and decides nothing. `teacher` is the network whose answers finalists learn from.
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

    def qat_epochs(self, candidate: Candidate) -> int:
        """How long a candidate trains on with rounding: only what becomes int8, and is no generated code."""
        return self.protocol.qat_epochs if self.task.precision == "int8" and candidate.structure is not None else 0

    @property
    def first_teacher(self) -> Teacher | None:
        """Who teaches in the float epochs."""
        return self.teacher if self.teacher is not None and self.teacher.from_start else None


def train_float(candidate: Candidate, job: FinalistJob) -> float | None:
    """Train one candidate as far as `run_finalist` trains it in float, and leave that to it in the candidate's folder.

    Returns the float validation accuracy, or None where training failed: `run_finalist` will say why.
    """
    torch.set_num_threads(job.threads)
    folder = job.folder / candidate.hash
    folder.mkdir(parents=True, exist_ok=True)
    try:
        training, epochs = _start(candidate, job, folder)
        with contextlib.closing(training):
            epoch = _last(epochs, folder, 0)
            training.save(folder)
    except CANDIDATE_ERRORS:
        return None
    return epoch.val_accuracy


def run_finalist(candidate: Candidate, job: FinalistJob) -> Finalist:
    """Take one candidate the whole way but the test set, leaving its files in `<folder>/<hash>/`.

    What goes wrong is the finalist's `reason`; it never ends the run.
    """
    torch.set_num_threads(job.threads)
    found = Finalist(number=candidate.number, hash=candidate.hash)
    if job.teacher is not None and candidate.structure is not None:
        found = found.model_copy(update={"note": f"taught by {job.teacher.name}"})
    folder = job.folder / candidate.hash
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found, deployed = _train(found, candidate, job, folder)
        if job.toolchain is not None:
            found = _built(found, job.toolchain, folder, job, deployed)
        if not found.reason:
            opinions = tuple(_second_opinion(backend, deployed, job.task, folder) for backend in job.second_opinions)
            found = found.model_copy(update={"second_opinions": opinions})
    except (AutoMcuError, *CANDIDATE_ERRORS) as error:
        return _refused(found, in_words(error))
    return found


def _built(
    found: Finalist, toolchain: Toolchain, folder: Path, job: FinalistJob, deployed: DeployedNetwork
) -> Finalist:
    """Return the finalist as the toolchain, and the board where there is one, leave it."""
    firmware = toolchain.build(deployed, folder / "firmware")
    found = found.model_copy(update={"feasibility": firmware.report})
    if not firmware.report.feasible:
        return _refused(found, "; ".join(v.message for v in firmware.report.violations))
    firmware.collect(folder / SHIPPED)
    val = job.val_split
    found = _scored(found, toolchain.backend.accuracy(deployed, job.task, val.images, val.labels))
    if job.board is not None and firmware.board_elf is not None:
        shutil.copy(firmware.board_elf, folder / BOARD_ELF)
        found = _on_board(found, job.board, folder, job, deployed)
    return found


def _scored(found: Finalist, accuracy: float | None) -> Finalist:
    """Return the finalist with the accuracy of what ships, where that computes otherwise than onnxruntime."""
    if accuracy is None or found.training is None:
        return found
    return found.model_copy(update={"training": found.training.model_copy(update={"val_accuracy": accuracy})})


def _on_board(found: Finalist, board: Board, folder: Path, job: FinalistJob, deployed: DeployedNetwork) -> Finalist:
    assert found.feasibility is not None, "a board comes after the toolchain"
    images = job.val_split.images[:BOARD_CHECK_IMAGES]
    result = run_on_board(board, folder / BOARD_ELF, job.task, deployed, images)
    measured = {
        "rung": Rung.BOARD,
        "instructions": result.instructions,
        "stack_used_bytes": result.stack_used_bytes,
    }
    found = found.model_copy(update={"board": result, "feasibility": found.feasibility.model_copy(update=measured)})
    if not result.agrees:
        return _refused(found, f"the board differs from onnxruntime by {result.largest_difference:g}")
    return found


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
    return in_words_of_the_spec(firmware.report)


@retry(retry=retry_if_exception_type(BoardError), stop=stop_after_attempt(2), reraise=True)
def run_on_board(board: Board, elf: Path, task: Task, deployed: DeployedNetwork, images: Images) -> BoardResult:
    """Run images (N, C, H, W) on a board and compare every output with onnxruntime's; tried twice.

    Raises:
        BoardError: the board did not answer as agreed, two times.
    """
    run = board.run(
        elf,
        task.target,
        deployed.encode(images),
        output_dtype=deployed.output_dtype,
        output_count=deployed.num_classes,
    )
    expected = deployed.run(images)
    equal = sum(ours.tobytes() == theirs.tobytes() for ours, theirs in zip(run.outputs, expected, strict=True))
    difference = float(np.abs(run.outputs.astype(np.float64) - expected).max())
    rounding = 0.0 if deployed.precision == "int8" else FLOAT32_ROUNDING * float(np.abs(expected).max() + 1)
    return BoardResult(
        name=board.label(task.target),
        images=len(images),
        bit_equal_images=equal,
        largest_difference=difference,
        agrees=difference <= rounding,
        instructions=run.instructions,
        stack_used_bytes=run.stack_used_bytes,
        seconds=run.seconds,
    )


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


def _train(found: Finalist, candidate: Candidate, job: FinalistJob, folder: Path) -> tuple[Finalist, DeployedNetwork]:
    training, epochs = _start(candidate, job, folder)
    with contextlib.closing(training):
        epoch = _last(epochs, folder, 0)
        summary, deployed = training.finish(epoch)
        checkpoint = training.save(folder)
        if job.qat_epochs(candidate):
            try:
                more = training.start_rounded(_checkpoint("qat", candidate, job, folder), _taught_by(job.teacher, job))
                _last(more, folder, job.protocol.epochs)
                summary, deployed = _better((summary, deployed), training.finish(epoch), job.val_split, folder)
            except CANDIDATE_ERRORS as error:
                # What was trained before, rounded by calibration alone, still stands.
                failed = f"training with rounding failed: {in_words(error)}"
                found = found.model_copy(update={"note": "; ".join(filter(None, [found.note, failed]))})
    save_deployed(deployed, folder)
    return found.model_copy(update={"training": summary.model_copy(update={"checkpoint": str(checkpoint)})}), deployed


def _start(candidate: Candidate, job: FinalistJob, folder: Path) -> tuple[TrainingJob, Iterator[Epoch]]:
    """Return a training and its epochs; those of generated code begin anew after an interruption."""
    if candidate.structure is None:
        shares: Any = {"threads": job.threads, "gpus": job.gpus}
        jailed = CodeJob(job.task, job.protocol, job.train_split, job.val_split, job.jail, **shares)
        return jailed, jailed.start(candidate.code, seed=job.seed)
    training = TrainingJob(job.task, job.protocol, job.train_split, job.val_split, gpus=job.gpus)
    checkpoint = _checkpoint("float", candidate, job, folder)
    teacher = _taught_by(job.first_teacher, job)
    return training, training.start(candidate.structure, seed=job.seed, checkpoint=checkpoint, teacher=teacher)


def _checkpoint(phase: str, candidate: Candidate, job: FinalistJob, folder: Path) -> Checkpoint:
    what = f"{phase} {candidate.trial_config()} {job.task.input_shape} {job.task.num_classes}"
    how = f"{job.protocol.model_dump_json()} seed {job.seed} {job.task.dataset} {len(job.train_split)}"
    teacher = job.teacher if phase == "qat" else job.first_teacher
    by = f"taught by {teacher.name}" if teacher is not None else ""
    return Checkpoint(folder / f"{phase}.checkpoint", f"{what} {how} {by}")


def _taught_by(teacher: Teacher | None, job: FinalistJob) -> Network | None:
    return None if teacher is None else teacher.network(job.task)


def _last(epochs: Iterator[Epoch], folder: Path, before: int) -> Epoch:
    """Train to the end and return the last epoch, leaving the number of each, after those before, for the screen."""
    for epoch in epochs:
        write_whole(folder / EPOCH, str(before + epoch.number).encode())
    return epoch


def _better(ptq: Trained, qat: Trained, val: Split, folder: Path) -> Trained:
    """Return the one of two ways to int8 that validation prefers, the shorter one of equals, and keep both files.

    The float accuracy stays that of the float network; the seconds are those of both trainings.
    """
    ways = (_quantised("ptq", *ptq, val, folder), _quantised("qat", *qat, val, folder))
    first, other = ways if ways[0].val_accuracy >= ways[1].val_accuracy else ways[::-1]
    about = {"val_accuracy": first.val_accuracy, "quantised": (first, other), "seconds": qat[0].seconds}
    return ptq[0].model_copy(update=about), (ptq if first.method == "ptq" else qat)[1]


def _quantised(
    method: Literal["ptq", "qat"], summary: TrainingSummary, deployed: DeployedNetwork, val: Split, folder: Path
) -> Quantised:
    save_deployed(deployed, folder / method)
    as_float = deployed.as_float.accuracy(val.images, val.labels)
    return Quantised(method=method, val_accuracy=summary.val_accuracy, val_accuracy_float=as_float)


def _refused(found: Finalist, reason: str) -> Finalist:
    return found.model_copy(update={"reason": reason[:500]})
