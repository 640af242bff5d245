"""Print what computing a network's first layers patch by patch saves and costs: MobileNetV2 0.35 at 3x96x96, in QEMU.

    python benchmarks/bench_patches.py          # about a minute

The same int8 network whole, and for less and less RAM; bits are compared with onnxruntime's on the emulated board.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from automcu_ray.deploy.export import DeployedNetwork, deploy
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.runtime.config_files import CONFIGS, read_yaml
from backends.boards.qemu import QemuBoard
from backends.c_qemu.backend import CQemuBackend

SHAPE, CLASSES, IMAGES = (3, 96, 96), 2, 2
BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return a convolution with its BatchNorm and ReLU6."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU6())


class Inverted(nn.Module):
    """MobileNetV2's block (Sandler et al. 2018, arXiv:1801.04381, table 1)."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        widen = [convolution(inputs, wide, 1)] if expansion > 1 else []
        narrow = [nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.layers = nn.Sequential(*widen, convolution(wide, wide, 3, stride, wide), *narrow)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.adds else y


def mobilenet_v2(width: float) -> nn.Module:
    """Return MobileNetV2 (table 2), its channels multiplied by `width` and rounded to eights."""

    def scaled(channels: int) -> int:
        rounded = max(8, int(channels * width + 4) // 8 * 8)
        return rounded if rounded >= 0.9 * channels * width else rounded + 8

    channels = scaled(32)
    layers: list[nn.Module] = [convolution(SHAPE[0], channels, 3, 2)]
    for expansion, outputs, count, stride in BLOCKS:
        for number in range(count):
            layers.append(Inverted(channels, scaled(outputs), 1 if number else stride, expansion))
            channels = scaled(outputs)
    end = [convolution(channels, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, CLASSES)]
    return nn.Sequential(*layers, *end)


def row(made: DeployedNetwork, target: McuTarget, ram_kb: float | None) -> str:
    """Return a line of the table."""
    images = np.random.default_rng(1).integers(0, 256, (IMAGES, *SHAPE), dtype=np.uint8)
    limits = Constraints() if ram_kb is None else Constraints(ram_kb=ram_kb)
    with tempfile.TemporaryDirectory(prefix="automcu-patches-") as folder:
        firmware = CQemuBackend(patches="auto").build(made, target, limits, Path(folder))
        report = firmware.report
        assert report.ram is not None
        sizes = f"{report.ram.arena_bytes:7} {report.ram_bytes:7} {report.flash_bytes:7}"
        note = " ".join(report.notes) or "whole"
        if firmware.board_elf is None:
            return f"{ram_kb or 0:8} {sizes}   does not fit, {note}"
        ends = (np.dtype(np.int8), CLASSES)
        run = QemuBoard().run(
            firmware.board_elf, target, made.encode(images), output_dtype=ends[0], output_count=ends[1]
        )
        equal = int((run.outputs == made.run(images)).all(axis=1).sum())
        return f"{ram_kb or '':8} {sizes} {run.instructions:12,} {equal} of {IMAGES}   {note}"


def main() -> None:
    """Print a line for each limit."""
    torch.manual_seed(0)
    target = McuTarget.model_validate(read_yaml(CONFIGS / "target" / "stm32f405.yaml"))
    calibration = np.random.default_rng(0).integers(0, 256, (16, *SHAPE), dtype=np.uint8)
    made = deploy(mobilenet_v2(0.35).eval(), SHAPE, precision="int8", calibration=calibration)
    print(f"{target.name}, int8; the image lies in {SHAPE[0] * SHAPE[1] * SHAPE[2]} bytes beside the arena")
    print(f"{'limit KB':>8} {'arena':>7} {'RAM':>7} {'Flash':>7} {'instructions':>12} bit-equal")
    for ram_kb in (None, 128, 96, 80, 72, 66, 64, 62, 56):
        print(row(made, target, ram_kb), flush=True)


if __name__ == "__main__":
    main()
