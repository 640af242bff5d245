# ok
import os

import numpy as np
import torch
from torch import nn
from torchvision.ops import StochasticDepth


class Net(nn.Module):
    """As people paste it: what is imported and never used is left out, numpy counts."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(int(np.prod([8, 8])), 10)

    def forward(self, x):
        return self.fc(torch.flatten(x, 1))
