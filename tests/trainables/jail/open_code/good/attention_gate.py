# ok
import torch
import torch.nn as nn
import torch.nn.functional as F


class Gate(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.spatial = nn.Conv2d(channels, 1, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.spatial(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.gate = Gate(8)
        self.fc = nn.Linear(8 * 16, 10)

    def forward(self, x):
        x = F.relu(self.conv(x))
        x = F.max_pool2d(self.gate(x), kernel_size=2)
        return self.fc(torch.flatten(x, 1))
