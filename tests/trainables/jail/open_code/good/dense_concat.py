# ok
import torch
import torch.nn as nn
import torch.nn.functional as F


class DenseLayer(nn.Module):
    def __init__(self, cin, growth):
        super().__init__()
        self.bn = nn.BatchNorm2d(cin)
        self.conv = nn.Conv2d(cin, growth, 3, padding=1, bias=False)

    def forward(self, x):
        return torch.cat([x, F.relu(self.conv(self.bn(x)))], dim=1)


class Net(nn.Module):
    """A very small DenseNet."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.dense = nn.Sequential(DenseLayer(8, 4), DenseLayer(12, 4), DenseLayer(16, 4))
        self.transition = nn.Conv2d(20, 10, 1)
        self.pool = nn.AvgPool2d(2)
        self.fc = nn.Linear(10 * 4 * 4, 10)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = self.pool(F.relu(self.transition(self.dense(x))))
        return self.fc(x.reshape(x.shape[0], -1))
