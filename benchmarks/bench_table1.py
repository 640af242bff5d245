"""Print Table I of paper 000 for four networks of torchvision: Flash and RAM at float32, beside the paper's figures.

    pip install torchvision==0.28.0 --no-deps
    python benchmarks/bench_table1.py

Images are 3x32x32 with 10 classes. Flash is the weights and biases in the generated C (not the bounds of ReLU6, 8
bytes each). The paper's RAM is the activations that ST's tool plans; ours is the arena that c_qemu's C declares, input
and output beside it. `separate` is the same planner with every output apart from its inputs.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from automcu_ray.deploy.export import DeployedNetwork, deploy
from backends.c_qemu.cgen import generate
from backends.c_qemu.planner import lower_bound_bytes, plan

SHAPE, CLASSES, KB = (3, 32, 32), 10, 1024
PAPER = {  # RAM and Flash in KB, paper 000, Table I, CIFAR-10
    "mobilenet_v2": (110.44, 8670.41),
    "shufflenet_v2_x1_0": (24.00, 4905.33),
    "squeezenet1_0": (72.00, 2892.79),
    "mnasnet1_0": (54.75, 12094.38),
}


def torchvision_models() -> Any:
    """Return torchvision's models; its wheel for CUDA does not load beside a CPU torch without two declarations."""
    declare: Any = torch.library.Library  # untyped
    library = declare("torchvision", "DEF")
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):  # a wheel for CPU has them
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torchvision import models

    return models


def deployed(make: Callable[..., nn.Module]) -> DeployedNetwork:
    """Return a network at float32, with random weights."""
    network = make(num_classes=CLASSES).eval()
    for values in network.parameters():
        if values.ndim == 1:
            nn.init.normal_(values)  # equal biases, as of untrained networks, would be stored once
    images = np.zeros((1, *SHAPE), np.uint8)
    return deploy(network, SHAPE, precision="float32", calibration=images)


def main() -> None:
    models = torchvision_models()
    print("network              Flash KB  paper     RAM KB: arena  bound  in+out  separate  sum of all  paper")
    for name, (ram, flash) in PAPER.items():
        network = deployed(getattr(models, name))
        made = generate(network)
        apart = plan([dataclasses.replace(buffer, over=()) for buffer in made.buffers])
        figures = (made.arena_bytes, lower_bound_bytes(made.buffers), 4 * (3 * 32 * 32 + CLASSES), apart.arena_bytes)
        total = sum(buffer.size_bytes for buffer in made.buffers)
        weights = sum(size for node, size in made.weights.items() if not node.endswith("Clip"))
        row = " ".join(f"{size / KB:8.2f}" for size in (*figures, total))
        print(f"{name:20} {weights / KB:9.2f} {flash:9.2f} {row} {ram:8.2f}")


if __name__ == "__main__":
    main()
