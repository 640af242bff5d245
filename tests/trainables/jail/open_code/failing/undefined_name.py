# refused: shapes schema
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3)

    def forward(self, x):
        return self.conv(x).mean((2, 3))
