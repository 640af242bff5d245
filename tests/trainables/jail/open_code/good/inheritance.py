# ok
import abc

import torch
from torch import nn


class Base(nn.Module, metaclass=abc.ABCMeta):
    def __init__(self, width):
        super().__init__()
        self.features = self.make_features(width)
        self.fc = nn.Linear(width, 10)

    @abc.abstractmethod
    def make_features(self, width):
        """Return the convolutions."""

    def forward(self, x):
        return self.fc(self.features(x).mean(dim=[2, 3]))


class Net(Base):
    def __init__(self):
        super().__init__(width=12)

    def make_features(self, width):
        return nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3), nn.ReLU())
