# ok
from __future__ import annotations

from dataclasses import dataclass, field
from typing import List

import torch
from torch import Tensor, nn


@dataclass
class Config:
    in_channels: int = 1
    widths: List[int] = field(default_factory=lambda: [8, 16])
    classes: int = 10


class Net(nn.Module):
    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config or Config()
        first, second = self.config.widths
        self.conv1 = nn.Conv2d(self.config.in_channels, first, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(first, second, 3, stride=2, padding=1)
        self.fc = nn.Linear(second * 4, self.config.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv2(self.conv1(x).relu()).relu()
        return self.fc(torch.flatten(x, start_dim=1))
