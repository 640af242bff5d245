"""A bundle for tests: a network with random weights, built for a board and packaged as a run does it."""

from pathlib import Path

import numpy as np

from automcu_ray.deploy.bundle import write_bundle
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.records.manifest import Encoding, InputEncoding, Memory, NetworkManifest
from backends.boards.qemu import QemuBoard
from backends.c_qemu.backend import CQemuBackend
from trainables.finalists.board_check import run_on_board

HOSTILE = ('"; system("id"); //', "brick */ #error", "gräs ??/", "a\nb\\", "`<script>` {{ 7*7 }}")


def make_bundle(
    folder: Path, deployed: DeployedNetwork, target: McuTarget, *, images: int = 4, classes: tuple[str, ...] = HOSTILE
) -> NetworkManifest:
    """Write a bundle and return its manifest; figures are the board's, where the target has an emulator."""
    task = Task(
        dataset="random", input_shape=deployed.input_shape, num_classes=deployed.num_classes, target=target,
        constraints=Constraints(), precision=deployed.precision, front_end=deployed.front_end,
    )  # fmt: skip
    backend, work = CQemuBackend(), folder.with_suffix(".work")
    work.mkdir()
    firmware = backend.build(deployed, target, task.constraints, work)
    firmware.collect(folder.with_suffix(".shipped"))
    rng = np.random.default_rng(0)
    vectors = rng.integers(0, 256, (images, *deployed.input_shape), dtype=np.uint8)
    board = None
    if target.emulator is not None:
        assert firmware.board_elf is not None
        board = run_on_board(QemuBoard(), firmware.board_elf, task, deployed, vectors)
    report = firmware.report
    manifest = NetworkManifest(
        target=target.name, backend=report.backend, precision=deployed.precision, hash="abc", number=1,
        ram_bytes=report.ram_bytes, flash_bytes=report.flash_bytes, memory=Memory(),
        ram_limit_bytes=task.ram_limit_bytes, flash_limit_bytes=task.flash_limit_bytes,
        board=board and board.name, board_images=images, bit_equal_images=board and board.bit_equal_images,
        board_largest_difference=board and board.largest_difference, instructions=board and board.instructions,
        stack_used_bytes=board and board.stack_used_bytes, val_accuracy=0.5, val_accuracy_float=0.5,
        test_accuracy=0.5, test_images=images, test_accuracy_float=0.5, seeds={}, versions={}, architecture=None,
        input=InputEncoding(shape=deployed.input_shape, scale=None, zero_point=None),
        output=Encoding(scale=deployed.output_scale, zero_point=deployed.output_zero_point),
        classes=classes, preparation=backend.preparation(deployed, task),
    )  # fmt: skip
    write_bundle(
        folder, deployed, manifest, shipped=folder.with_suffix(".shipped"), images=vectors,
        labels=np.zeros(images, np.int64), finish=lambda part: backend.package(part, deployed, task, manifest),
    )  # fmt: skip
    return manifest
