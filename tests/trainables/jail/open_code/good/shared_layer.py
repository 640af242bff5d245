# ok
import torch
from torch import nn


class Net(nn.Module):
    """The same convolution three times: a recurrent block."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.step = nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        for _ in range(3):
            x = torch.relu(self.step(x))
        return self.fc(x.mean((2, 3)))
