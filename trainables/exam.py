"""The test set: read once, for the winner alone, with its firmware on the board beside it."""

import dataclasses
from pathlib import Path
from typing import Any

from automcu_ray.bundle import write_bundle
from automcu_ray.export import DeployedNetwork
from automcu_ray.record import BoardResult, Finalist
from trainables.datasets.base import Split
from trainables.finalist import BOARD_ELF, SHIPPED, FinalistJob, load_deployed, run_on_board

OUTPUTS = "outputs as onnxruntime computes them"
NO_OUTPUTS = "no outputs, since what ships does not compute as onnxruntime does"


def examine(
    winner: Finalist, job: FinalistJob, test: Split, *, board_images: int, bundle: Path, about: dict[str, Any]
) -> dict[str, Any]:
    """Return the manifest of the winner, after writing the bundle.

    The board runs the first `board_images` test images; each must give the bytes that onnxruntime gives. Where the
    backend computes otherwise (its `accuracy` is not None), neither manifest nor test vectors speak of outputs.
    """
    folder = job.folder / winner.hash
    deployed = load_deployed(folder)
    board, elf = None, folder / BOARD_ELF
    if job.board is not None and elf.exists():
        board = run_on_board(job.board, elf, job.task, deployed, test.images[:board_images])
    quantised = winner.training is not None and winner.training.quantised
    trained = load_deployed(folder / "ptq") if quantised else deployed  # in float, that is what was trained
    manifest = {
        **_figures(winner, job, board),
        **_accuracies(winner, deployed, job, test),
        "test_accuracy_float": trained.as_float.accuracy(test.images, test.labels),
        **about,
    }
    write_bundle(
        bundle,
        dataclasses.replace(deployed, float_onnx=trained.float_onnx),
        manifest,
        shipped=folder / SHIPPED,
        images=test.images,
        labels=test.labels,
        with_outputs=manifest["output"] is not None,
    )
    return manifest


def _figures(winner: Finalist, job: FinalistJob, board: BoardResult | None) -> dict[str, Any]:
    report = winner.feasibility
    sizes = report.model_dump(mode="json", include={"ram", "flash", "operators", "notes"}) if report else {}
    return {
        "target": job.task.target.name,
        "backend": report.backend if report else None,
        "precision": job.task.precision,
        "hash": winner.hash,
        "number": winner.number,
        "ram_bytes": report.ram_bytes if report else None,
        "flash_bytes": report.flash_bytes if report else None,
        "ram_limit_bytes": job.task.ram_limit_bytes,
        "flash_limit_bytes": job.task.flash_limit_bytes,
        "memory": sizes,
        "board": board.name if board else None,
        "board_images": board.images if board else None,
        "bit_equal_images": board.bit_equal_images if board else None,
        "board_agrees": board.agrees if board else None,
        "board_largest_difference": board.largest_difference if board else None,
        "instructions": board.instructions if board else None,
        "stack_used_bytes": board.stack_used_bytes if board else None,
        "second_opinions": [report.model_dump(mode="json") for report in winner.second_opinions],
    }


def _accuracies(winner: Finalist, deployed: DeployedNetwork, job: FinalistJob, test: Split) -> dict[str, Any]:
    assert winner.training is not None, "a winner has been trained"
    backend = job.toolchain and job.toolchain.backend
    shipped = backend.accuracy(deployed, job.task, test.images, test.labels) if backend else None
    as_onnx = shipped is None
    return {
        "val_accuracy": winner.training.val_accuracy,
        "val_accuracy_float": winner.training.val_accuracy_float,
        "test_accuracy": deployed.accuracy(test.images, test.labels) if as_onnx else shipped,
        "quantised": [way.model_dump(mode="json") for way in winner.training.quantised],
        "test_images": len(test),
        "input": {
            "shape": deployed.input_shape,
            "scale": deployed.input_scale,
            "zero_point": deployed.input_zero_point,
        },
        "output": {"scale": deployed.output_scale, "zero_point": deployed.output_zero_point} if as_onnx else None,
        "test_vectors": f"images, inputs and labels; {OUTPUTS if as_onnx else NO_OUTPUTS}",
    }
