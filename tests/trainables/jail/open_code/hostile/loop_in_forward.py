# refused: shapes time; without the screen: shapes time
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        while True:
            x = x + 0
        return self.fc(x.flatten(1))
