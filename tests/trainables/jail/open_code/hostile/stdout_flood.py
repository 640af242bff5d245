# ok; without the screen: ok
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.conv = nn.Linear(4, 10), nn.Conv2d(1, 4, 3, padding=1)

    def forward(self, x):
        for _ in range(20_000):
            print("x" * 10_000)
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
