# ok
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(1))
        self.scale = nn.Parameter(torch.ones(1, 8, 1, 1))
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.fc = nn.Linear(8 * 16, 10)

    def forward(self, x):
        if self.training:
            self.steps += 1
        x = torch.relu(self.conv(x)) * self.scale
        x = nn.functional.max_pool2d(x, 2)
        return self.fc(x.flatten(1))
