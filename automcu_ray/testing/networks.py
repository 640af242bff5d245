"""Small networks with every operator the space can propose, with statistics that make their outputs differ."""

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from automcu_ray.deploy.export import DeployedNetwork, deploy
from automcu_ray.problem.precision import Precision

SHAPE = (3, 12, 12)
CLASSES = 5


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return a convolution with its BatchNorm."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class Plain(nn.Module):
    """conv, depthwise, ReLU, ReLU6, residual add, max and average pooling, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise, self.point = conv(3, 8), conv(8, 8, groups=8), conv(8, 8, 1)
        self.head = nn.Linear(8 * 3 * 3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.stem(x).relu(), 2)
        x = x + self.point(nn.functional.relu6(self.depthwise(x)))
        logits: Tensor = self.head(nn.functional.avg_pool2d(x, 2).flatten(1))
        return logits


class Attention(nn.Module):
    """ghost concat, squeeze-and-excite (global pooling, sigmoid, mul), a residual behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.cheap = conv(3, 4, stride=2), conv(4, 4, groups=4)
        self.squeeze, self.excite = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        x = torch.cat([x, self.cheap(x).relu()], dim=1)
        scale = self.excite(self.squeeze(nn.functional.adaptive_avg_pool2d(x, 1)).relu()).sigmoid()
        x = x + x * scale
        logits: Tensor = self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))
        return logits


class Viewed(nn.Module):
    """A shape computed at run time, as people write it: `x.view(x.size(0), -1)`."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = conv(3, 4, stride=4), nn.Linear(4 * 3 * 3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        logits: Tensor = self.head(x.view(x.size(0), -1))
        return logits


NETWORKS: dict[str, Callable[[], nn.Module]] = {"plain": Plain, "attention": Attention, "viewed": Viewed}


def images(count: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Return random images, the first two all 0 and all 255."""
    made = np.random.default_rng(seed).integers(0, 256, (count, *SHAPE), dtype=np.uint8)
    made[0], made[1:2] = 0, 255
    return made


def network(name: str) -> nn.Module:
    """Return a network whose BatchNorm has seen some images."""
    torch.manual_seed(0)
    made = NETWORKS[name]()
    with torch.no_grad():
        for seed in range(4):
            made(torch.from_numpy(images(32, seed)).float() / 128 - 1)
    return made.eval()


@functools.cache
def deployed_network(name: str, precision: Precision) -> DeployedNetwork:
    """Return one of the networks as it ships; made once, since tests only read it."""
    return deploy(network(name), SHAPE, precision=precision, calibration=images(64, seed=9))
