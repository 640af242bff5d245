"""CPU seconds of every stage from a torch network to an answer of the emulated board, for three sizes; of verdicts.

    python benchmarks/bench_toolchain.py
    python benchmarks/bench_toolchain.py 20    # and whole verdicts on so many random candidates, within 64 KB each

The second candidate of a process counts: the first also pays for imports and templates. The candidates' limit of
instructions is one that all exceed, so that each is counted twice, layer by layer the second time: the dearest verdict.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import nn

from automcu_ray.deploy import export
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config_files import CONFIGS, read_yaml
from automcu_ray.sizing.footprint import check_bounds
from backends.boards.qemu import QemuBoard
from backends.c_qemu.backend import CQemuBackend
from backends.c_qemu.cgen import generate
from backends.c_qemu.planner import plan
from backends.programs import cpu_seconds
from backends.toolchain import Toolchain

SHAPE = (3, 32, 32)
WIDTHS = (8, 16, 40)
STAGES = ("export", "quantise", "codegen", "plan", "compile", "link", "qemu")


def sample(width: int) -> nn.Module:
    """Return a stack of inverted residuals without the residuals, as wide as asked."""

    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        wide = 3 * inputs
        return [
            *(nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()),
            *(nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU()),
            *(nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        ]

    stem = [nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    body = [*block(width, 2 * width, 2), *block(2 * width, 4 * width, 2), *block(4 * width, 4 * width, 1)]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10)).eval()


def measure(network: nn.Module, target: McuTarget, folder: Path) -> dict[str, float]:
    """Return CPU seconds by stage."""
    seconds: dict[str, float] = {}

    def timed(stage: str, work: Callable[[], Any]) -> Any:
        start = cpu_seconds()
        made = work()
        seconds[stage] = cpu_seconds() - start
        return made

    images = np.random.default_rng(0).integers(0, 256, (64, *SHAPE), dtype=np.uint8)
    timed("export", lambda: export.deploy(network, SHAPE, precision="float32", calibration=images))
    deployed = timed("quantise", lambda: export.deploy(network, SHAPE, precision="int8", calibration=images))
    seconds["quantise"] -= seconds["export"]
    code = timed("codegen", lambda: generate(deployed))
    timed("plan", lambda: plan(code.buffers))
    backend = CQemuBackend()
    (folder / "net.c").write_text(code.source)
    timed("compile", lambda: backend._compile(target.core, folder, ["net"]))
    layout = backend._layout(deployed, target, Constraints(), folder, ["net"])
    timed("link", lambda: backend._judge(deployed, code, target, layout, folder))
    elf, inputs = folder / "net.elf", deployed.encode(images[:1])
    run = timed("qemu", lambda: QemuBoard().run(elf, target, inputs, output_dtype=np.int8, output_count=10))
    assert np.array_equal(run.outputs, deployed.run(images[:1]))
    return seconds


def verdicts(count: int, target: McuTarget, folder: Path) -> list[dict[str, float]]:
    """Return CPU seconds by rung of random candidates that link and are too slow."""
    limits = Constraints(ram_kb=64, flash_kb=64, instructions_m=0.001)
    task = Task(dataset="random", input_shape=SHAPE, num_classes=10, target=target, constraints=limits)
    toolchain, rng = Toolchain(task, "c_qemu", {}, folder, QemuBoard()), Random(0)
    found: list[dict[str, float]] = []
    while len(found) < count:
        candidate = task.space.sample(rng)
        assert candidate.structure is not None, "the space has specs only"
        if check_bounds(task.graph(candidate.structure), task):
            continue
        report = toolchain.check(candidate)
        if "emulate" in report.seconds_by_rung:
            assert "dearest layer" in report.violations[0].message
            found.append(dict(report.seconds_by_rung))
    return found


def main() -> None:
    torch.set_num_threads(1)
    target = McuTarget.model_validate(read_yaml(CONFIGS / "target" / "stm32f405.yaml"))
    print("parameters", *(f"{stage:>9}" for stage in (*STAGES, "total")))
    for number, width in enumerate((WIDTHS[0], *WIDTHS)):
        network = sample(width)
        with tempfile.TemporaryDirectory() as folder:
            seconds = measure(network, target, Path(folder))
        if number == 0:  # this one warmed up
            continue
        row = [*(seconds[stage] for stage in STAGES), sum(seconds.values())]
        print(f"{sum(p.numel() for p in network.parameters()):10,}", *(f"{value:9.3f}" for value in row))
    if not (count := int(sys.argv[1]) if sys.argv[1:] else 0):
        return
    with tempfile.TemporaryDirectory() as name:
        spent = verdicts(count + 1, target, Path(name))[1:]
    rungs = (*spent[0], "all")
    for rung in rungs:
        values = [sum(one.values()) if rung == "all" else one[rung] for one in spent]
        print(f"{rung:10} median {np.median(values):.2f}, largest {max(values):.2f}")


if __name__ == "__main__":
    main()
