# refused: shapes shape
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.fc = nn.Linear(8 * 36, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).flatten(1))
