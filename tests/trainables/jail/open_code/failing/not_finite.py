# refused: shapes shape
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 8, 3, bias=False), nn.Linear(8, 10)

    def forward(self, x):
        features = self.conv(x).mean((2, 3))
        return self.fc(features / features.norm(dim=1, keepdim=True))
