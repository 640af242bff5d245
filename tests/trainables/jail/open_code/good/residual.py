# ok 3x32x32
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return torch.relu(out)


class Net(nn.Module):
    def __init__(self, in_channels: int, num_classes: int):
        super().__init__()
        self.stem = nn.Conv2d(in_channels, 8, 3, stride=2, padding=1)
        self.block1 = Block(8)
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.block2 = Block(16)
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, num_classes)

    def forward(self, x):
        x = self.block1(torch.relu(self.stem(x)))
        x = self.block2(torch.relu(self.down(x)))
        x = self.pool(x)
        x = x.view(x.size(0), -1)
        return self.fc(x)
