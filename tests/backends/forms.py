"""Networks of one unusual form each, which other toolchains write in other ways: padding, groups, shuffles, sizes."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from automcu_ray.deploy.export import DeployedNetwork, deploy

SHAPE = (2, 8, 8)

Layer = Callable[[Tensor], Tensor]


class Shuffle(nn.Module):
    """Interleaves two groups of channels."""

    def forward(self, x: Tensor) -> Tensor:
        channels, height, width = x.shape[1:]
        return x.view(-1, 2, channels // 2, height, width).transpose(1, 2).reshape(-1, channels, height, width)


class Joined(nn.Module):
    """A concatenation whose parts have scales of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)
        with torch.no_grad():
            self.large.weight *= 5

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.small(x).relu(), self.large(x)], dim=1)


class Enlarged(nn.Module):
    """Nearest neighbours, enlarged."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return functional.interpolate(x, scale_factor=self.factor)


class Gated(nn.Module):
    """Squeeze and excite, whose middle is never above -1.5."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)
        with torch.no_grad():
            self.squeeze.weight.abs_().neg_()
        nn.init.constant_(self.squeeze.bias, -1.5)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        middle = self.squeeze(functional.adaptive_avg_pool2d(x.relu(), 1))
        return x * self.excite(middle.relu()).sigmoid()


FORMS: dict[str, Callable[[], nn.Module]] = {
    "convolution of stride 2, padded": lambda: nn.Conv2d(8, 8, 3, 2, 1),
    "convolution of stride 3, not padded": lambda: nn.Conv2d(8, 8, 3, 3),
    "dilated convolution": lambda: nn.Conv2d(8, 8, 3, padding=2, dilation=2),
    "grouped convolution": lambda: nn.Conv2d(8, 16, 3, padding=1, groups=4),
    "depthwise convolution, two for each": lambda: nn.Conv2d(8, 16, 3, padding=1, groups=8),
    "convolution of one row": lambda: nn.Conv2d(8, 8, (1, 5), padding=(0, 2)),
    "max pool, padded": lambda: nn.Sequential(nn.Conv2d(8, 8, 1), nn.MaxPool2d(3, 2, 1)),
    "average pool that counts its padding": lambda: nn.AvgPool2d(3, 2, 1),
    "average pool that keeps the size": lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False),
    "concatenation": Joined,
    "channel shuffle": Shuffle,
    "leaky ReLU": lambda: nn.Sequential(nn.Conv2d(8, 8, 1), nn.LeakyReLU(0.1)),
    "SiLU": lambda: nn.Sequential(nn.Conv2d(8, 8, 1), nn.SiLU()),
    "enlarged twice": lambda: Enlarged(2),
    "ReLU that gives zeros alone": lambda: Gated(8),
}


class _Around(nn.Module):
    def __init__(self, form: nn.Module) -> None:
        super().__init__()
        self.stem, self.form = nn.Conv2d(2, 8, 3, padding=1), form
        self.head = nn.Linear(form(torch.zeros(1, 8, 8, 8)).numel(), 5)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.form(self.stem(x)).flatten(1))
        return y


def network_with(form: nn.Module) -> DeployedNetwork:
    """Return an int8 network of a convolution, the form, and a linear layer."""
    torch.manual_seed(0)
    images = np.random.default_rng(0).integers(0, 256, (32, *SHAPE), dtype=np.uint8)
    return deploy(_Around(form).eval(), SHAPE, precision="int8", calibration=images)
