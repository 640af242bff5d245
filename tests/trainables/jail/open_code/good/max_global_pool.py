# ok
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 5, padding=2)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveMaxPool2d((2, 2))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        return self.fc(self.pool(self.relu(self.conv(x))).flatten(1))
