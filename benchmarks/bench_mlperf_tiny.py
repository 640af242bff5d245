"""Print which targets hold MLPerf Tiny's four networks, from ONNX through `automcu deploy --all-targets`.

    python benchmarks/bench_mlperf_tiny.py                # all four: an hour on two busy cores, with instructions
    python benchmarks/bench_mlperf_tiny.py resnet8 --set board.mode=none    # one, RAM and Flash alone

Weights are random and the data made up, for neither changes what a network takes. The architectures are those of
github.com/mlcommons/tiny, benchmark/training; the anomaly detector's 640 values stand for 640 classes here.
"""

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn


def conv(
    read: int, written: int, kernel: int | tuple[int, int], stride: int = 1, groups: int = 1, padded: bool = True
) -> nn.Sequential:
    """Return convolution, batch norm, ReLU; half a window of zeros on either side where `padded`."""
    sides = (kernel, kernel) if isinstance(kernel, int) else kernel
    pads = (sides[0] // 2, sides[1] // 2) if padded else (0, 0)
    layer = nn.Conv2d(read, written, sides, stride, pads, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(written), nn.ReLU())


class Block(nn.Module):
    """Two convolutions and a skip, projected where the shape changes."""

    def __init__(self, read: int, written: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(read, written, 3, stride), *list(conv(written, written, 3))[:2])
        self.skip = nn.Conv2d(read, written, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(body + skip)."""
        return torch.relu(self.body(x) + self.skip(x))


def head(channels: int, classes: int) -> list[nn.Module]:
    """Return a global mean and a linear layer."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


def resnet8() -> nn.Module:
    """Image classification: 77,360 weights."""
    return nn.Sequential(conv(3, 16, 3), Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2), *head(64, 10))


def dscnn() -> nn.Module:
    """Keyword spotting: features of 49 frames, ten each.

    Windows of 10x4 with Keras's padding "same" give 25x5 places; half a window on either side would give 25x6.
    """
    parts = [part for _ in range(4) for part in (conv(64, 64, 3, groups=64), conv(64, 64, 1))]
    return nn.Sequential(nn.ZeroPad2d((1, 1, 4, 5)), conv(1, 64, (10, 4), 2, padded=False), *parts, *head(64, 12))


def mobilenet() -> nn.Module:
    """Visual wake words: MobileNetV1 of a quarter's width."""
    parts, read = [conv(3, 8, 3, 2)], 8
    for written, stride in (
        (16, 1),
        (32, 2),
        (32, 1),
        (64, 2),
        (64, 1),
        *[(128, 2)],
        *[(128, 1)] * 5,
        (256, 2),
        (256, 1),
    ):
        parts += [conv(read, read, 3, stride, read), conv(read, written, 1)]
        read = written
    return nn.Sequential(*parts, *head(256, 2))


def autoencoder() -> nn.Module:
    """Anomaly detection: 640 values, four layers of 128, eight, four of 128, 640."""
    parts: list[nn.Module] = [nn.Flatten()]
    for read, written in ((640, 128), *[(128, 128)] * 3, (128, 8), (8, 128), *[(128, 128)] * 3):
        parts += [nn.Linear(read, written), nn.BatchNorm1d(written), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(128, 640))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int], int]] = {
    "resnet8": (resnet8, (3, 32, 32), 10),
    "dscnn": (dscnn, (1, 49, 10), 12),
    "mobilenet": (mobilenet, (3, 96, 96), 2),
    "autoencoder": (autoencoder, (1, 1, 640), 640),
}


def main() -> None:
    """Run the command for each network that is named, or for all; other words go to it."""
    words = sys.argv[1:]
    named = [word for word in words if word in NETWORKS]
    for name in named or NETWORKS:
        make, shape, classes = NETWORKS[name]
        with tempfile.TemporaryDirectory(prefix="automcu-tiny-") as folder:
            write(make(), shape, classes, Path(folder), name)
            print(f"{name}, {'x'.join(map(str, shape))}", flush=True)
            task = ["--task", "images", "--dataset", "npz", "--set", f"dataset.folder={folder}"]
            extra = [word for word in words if word not in NETWORKS]
            argv = [str(Path(sys.executable).with_name("automcu")), "deploy", f"{folder}/{name}.onnx", *task]
            subprocess.run([*argv, "--pixels", "symmetric", "--all-targets", *extra], check=True)


def write(network: nn.Module, shape: tuple[int, int, int], classes: int, folder: Path, name: str) -> None:
    """Write a network with random weights as ONNX, and noise with labels as data."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(module.bias)
    labels = np.arange(max(100, 10 * classes)) % classes
    images = rng.integers(0, 256, (len(labels), *shape), dtype=np.uint8)
    np.savez(folder / "data.npz", images=images, labels=labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = (torch.zeros(1, *shape),)
        torch.onnx.export(network.eval(), given, str(folder / f"{name}.onnx"), dynamo=False, opset_version=17)


if __name__ == "__main__":
    main()
