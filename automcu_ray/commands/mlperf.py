"""Build a bundle's network in MLPerf Tiny's protocol, and let the benchmark's own runner measure it in QEMU."""

import json
import zipfile
from pathlib import Path
from typing import Annotated, Any

import typer

from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.target import McuTarget
from automcu_ray.runtime import interruption
from automcu_ray.runtime.command import run_command
from automcu_ray.runtime.config_files import load

EPILOG = """
Examples:

  automcu mlperf runs/latest/bundle --to mlperf

  automcu mlperf runs/latest/bundle --runner ~/tiny/benchmark/runner

The first writes the firmware for the board, the bundle's test pictures and the runner's files, for a board on a desk:
flash performance.elf or energy.elf, put the board's USB ids into devices.yaml, and start the runner's main.py. With
--runner accuracy and performance mode run here, on the emulated board: its accuracy is compared with onnxruntime's, its
throughput counts instructions (125 million a second), for QEMU knows no time.

Exit status: 0 accuracies are equal, 1 they differ, 2 the input or the machine needs fixing.
"""
ICOUNT_SHIFT = (
    3  # 8 ns an instruction: windows of 10 s end within the runner's patience, and come near to a chip's pace
)


def mlperf(
    bundle: Annotated[Path, typer.Argument(help="Folder of a bundle, e.g. runs/latest/bundle.")],
    to: Annotated[Path, typer.Option(help="A new folder for firmware, pictures and the runner's files.")] = Path(
        "mlperf"
    ),
    model: Annotated[str, typer.Option(help="What the runner is told it measures: ic01, ic02, vww01, kws01.")] = "ic01",
    target: Annotated[
        str | None, typer.Option(help="The board, where the bundle's is not among configs: a YAML file.")
    ] = None,
    runner: Annotated[
        Path | None, typer.Option(help="Folder benchmark/runner of mlcommons/tiny: measure in QEMU.")
    ] = None,
) -> None:
    """Write a firmware that MLPerf Tiny's runner can measure; with --runner, measure it on the emulated board."""
    interruption.postpone()
    if to.exists():
        raise ConfigError(f"--to should be a new folder, found {to}: name another one, or remove it.")
    from backends.mlperf.build import build
    from backends.mlperf.kit import write_pictures, write_scripts

    manifest, vectors = _read(bundle)
    if (kind := manifest.get("learning", {}).get("kind", "classification")) != "classification":
        raise ConfigError(f"{bundle} is for {kind}: the runner is fed classifiers of pictures alone.")
    try:
        board = McuTarget.model_validate(load("target", target or str(manifest["target"])))
        instructions = manifest["instructions"]
        per_second = 1e9 / 2**ICOUNT_SHIFT / int(instructions) if instructions else None
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{bundle}/manifest.json: no target or instructions that can be read ({error}).") from error
    classes = int(vectors["outputs"].shape[1])
    write_pictures(vectors["images"], vectors["labels"], classes, to / "datasets" / model)
    write_scripts(to, model, per_second)
    for name, energy in (("performance", False), ("energy", True)):
        if board.uart.kind == "none" or (energy and board.timing_pin is None):
            lacks = "uart" if board.uart.kind == "none" else "timing_pin"
            print(f"{name}.elf: left out, {board.name} has no {lacks} in its file")
            continue
        elf = build(bundle / "src", board, to / f"build-{name}", model=model, energy=energy)
        elf.replace(to / f"{name}.elf")
        print(f"{name}.elf: for {board.name}")
    if runner is not None:
        raise typer.Exit(_measure(bundle, to, model, board, runner, vectors))


def _measure(bundle: Path, to: Path, model: str, board: McuTarget, runner: Path, vectors: dict[str, Any]) -> int:
    """Run both modes in QEMU and print what the runner says; return the exit status."""
    from backends.boards.qemu import QemuBoard
    from backends.mlperf.build import build
    from backends.mlperf.runner import run_runner

    elf = build(bundle / "src", board, to / "build-emulated", model=model, emulated=True)
    place = QemuBoard(icount_shift=ICOUNT_SHIFT)
    told = run_runner(runner, to, "accuracy", place, elf, board, to / "accuracy")
    quick = run_runner(runner, to, "performance", place, elf, board, to / "performance")
    for line in (*told.said, *quick.said):
        print(line)
    ours = int((vectors["outputs"].argmax(axis=1) == vectors["labels"]).sum())
    theirs, count = sum(one.right for one in told.answers), len(vectors["labels"])
    same = ours == theirs and len(told.answers) == count
    print(f"accuracy: onnxruntime {ours} of {count}, MLPerf's runner {theirs} of {len(told.answers)}: "
          f"{'equal' if same else 'DIFFERENT'}")  # fmt: skip
    return 0 if same else 1


def _read(bundle: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a bundle's manifest and test vectors.

    Raises:
        ConfigError: they cannot be read, or have no outputs.
    """
    import numpy as np

    try:
        manifest = json.loads((bundle / "manifest.json").read_text())
        with np.load(bundle / "test_vectors.npz", allow_pickle=False) as file:
            vectors = {name: file[name] for name in ("images", "labels", "outputs")}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"{bundle} should be a bundle of backend c_qemu with manifest.json and test_vectors.npz: {error}."
        ) from error
    images, labels, outputs = vectors.values()
    if images.ndim != 4 or images.dtype != np.uint8 or not len(images) == len(labels) == len(outputs):
        raise ConfigError(f"{bundle}/test_vectors.npz should hold as many uint8 images as labels and outputs.")
    return manifest, vectors


def main() -> None:
    """Run the command; errors of the user's input or machine are one line on stderr and exit status 2."""
    run_command(mlperf, EPILOG)
