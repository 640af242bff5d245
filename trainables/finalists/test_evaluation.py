"""The test set: read once, for the winner alone, with its firmware on the board beside it."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix, f1_score

from automcu_ray.core.errors import AutoMcuError
from automcu_ray.core.feasibility import FeasibilityReport, LayerCost
from automcu_ray.deploy.bundle import write_bundle
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.records.manifest import Encoding, InputEncoding, Memory, Mistake, NetworkManifest
from automcu_ray.records.record import Finalist
from trainables.datasets.base import Labels, Split
from trainables.finalists.board_check import run_on_board
from trainables.finalists.figures import figures, save_answers
from trainables.finalists.finalist import BOARD_ELF, SHIPPED, FinalistPipeline, load_deployed
from trainables.finalists.mistakes import draw, worst_mistakes

OUTPUTS = "outputs as onnxruntime computes them"
NO_OUTPUTS = "no outputs, since what ships does not compute as onnxruntime does"


def evaluate_on_test(
    winner: Finalist, pipeline: FinalistPipeline, test: Split, *, board_images: int, bundle: Path, about: dict[str, Any]
) -> NetworkManifest:
    """Return the manifest of the winner, after writing the bundle; `about` are fields of it that only the run knows.

    The board runs the first `board_images` test images; each must give the bytes that onnxruntime gives. Where the
    backend computes otherwise (its `accuracy` is not None), neither manifest nor test vectors speak of outputs.
    """
    training, report, task = winner.training, winner.feasibility, pipeline.task
    assert training is not None, "a winner has been trained"
    folder = pipeline.folder / winner.hash
    deployed = load_deployed(folder)
    board, elf = None, folder / BOARD_ELF
    if pipeline.board is not None and elf.exists():
        board = run_on_board(pipeline.board, elf, task, deployed, test.images[:board_images])
    trained = load_deployed(folder / "ptq") if training.quantised else deployed  # in float, that is what was trained
    backend = pipeline.toolchain.backend if pipeline.toolchain is not None else None
    shipped = backend.accuracy(deployed, task, test.images, test.labels) if backend else None
    answered = _figures(pipeline, deployed, trained.as_float, test, shipped, bundle)
    mistakes: tuple[Mistake, ...] = answered.get("mistakes", ())
    manifest = NetworkManifest(
        target=task.target.name,
        backend=report.backend if report else None,
        precision=task.precision,
        hash=winner.hash,
        number=winner.number,
        ram_bytes=report.ram_bytes if report else None,
        flash_bytes=report.flash_bytes if report else None,
        ram_limit_bytes=task.ram_limit_bytes,
        flash_limit_bytes=task.flash_limit_bytes,
        memory=Memory(**report.model_dump(include=set(Memory.model_fields))) if report else Memory(),
        board=board.name if board else None,
        board_images=board.images if board else None,
        bit_equal_images=board.bit_equal_images if board else None,
        board_agrees=board.agrees if board else None,
        board_largest_difference=board.largest_difference if board else None,
        instructions=board.instructions if board else None,
        instructions_limit=task.instructions_limit,
        estimated_latency_ms=task.target.latency_ms(board.instructions if board else None),
        profile=_profile(pipeline, deployed, report, folder / "profile") if board and report else (),
        memory_map=pipeline.toolchain.memory_map(deployed, report) if pipeline.toolchain and report else None,
        stack_used_bytes=board.stack_used_bytes if board else None,
        stream=winner.board.stream if winner.board else None,
        second_opinions=winner.second_opinions,
        val_accuracy=training.val_accuracy,
        val_accuracy_float=training.val_accuracy_float,
        learning=task.learning,
        **answered,
        quantised=training.quantised,
        test_images=len(test),
        input=InputEncoding(
            shape=deployed.input_shape, scale=deployed.input_scale, zero_point=deployed.input_zero_point
        ),
        output=Encoding(scale=deployed.output_scale, zero_point=deployed.output_zero_point)
        if shipped is None
        else None,
        test_vectors=f"images, inputs and labels; {OUTPUTS if shipped is None else NO_OUTPUTS}",
        layers=deployed.labels,
        preparation=backend.preparation(deployed, task) if backend else "",
        **about,
    )
    network = dataclasses.replace(deployed, float_onnx=trained.float_onnx)

    def finish(part: Path) -> None:
        if backend is not None and report is not None:
            backend.package(part, network, task, manifest)

    vectors: Any = {"images": test.images, "labels": test.labels}
    write_bundle(bundle, network, manifest, shipped=folder / SHIPPED, finish=finish, **vectors)
    draw(mistakes, test.images, bundle.with_name(f"{bundle.name}_mistakes.png"))
    return manifest


def _figures(
    pipeline: FinalistPipeline,
    deployed: DeployedNetwork,
    as_float: DeployedNetwork,
    test: Split,
    shipped: float | None,
    bundle: Path,
) -> dict[str, Any]:
    """Return what a manifest says of the answers to the test examples; `shipped` is an accuracy computed elsewhere."""
    learning = pipeline.task.learning
    found: dict[str, Any] = {"test_accuracy": shipped, "test_accuracy_float": None}
    if learning.kind == "classification":
        found["test_accuracy_float"] = as_float.accuracy(test.images, test.labels)
        if shipped is None:
            outputs = deployed.run(test.images)
            predicted = outputs.argmax(axis=1)
            found["test_accuracy"] = float(np.mean(predicted == test.labels))
            found["test_macro_f1"] = f1_score(test.labels, predicted, average="macro")
            found["confusion"] = _confusion(test.labels, predicted, deployed.num_classes)
            found["mistakes"] = worst_mistakes(deployed, outputs, test.labels)
    if learning.metric == "accuracy":
        return found
    more, answers = figures(learning, deployed, as_float, pipeline.train_split, pipeline.val_split, test)
    save_answers(bundle, answers, test.labels)
    return found | more


def _confusion(labels: Labels, predicted: Labels, classes: int) -> tuple[tuple[int, ...], ...]:
    counted = confusion_matrix(labels, predicted, labels=range(classes))
    return tuple(tuple(int(count) for count in row) for row in counted)


def _profile(
    pipeline: FinalistPipeline, deployed: DeployedNetwork, built: FeasibilityReport, workdir: Path
) -> tuple[LayerCost, ...]:
    """Return what each layer costs; () where that cannot be measured, for it decides nothing."""
    workdir.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(AutoMcuError):
        return pipeline.toolchain.profile(deployed, built, workdir) if pipeline.toolchain is not None else ()
    return ()
