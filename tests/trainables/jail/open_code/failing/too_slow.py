# refused: shapes time
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        y = torch.zeros(500, 500)
        for _ in range(1_000_000):
            y = torch.tanh(y @ y)
        return self.fc(x.flatten(1)) + y.sum()
