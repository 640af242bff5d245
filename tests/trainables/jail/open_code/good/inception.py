# ok 3x32x32
import torch
import torch.nn as nn


class Inception(nn.Module):
    def __init__(self, cin, c1, c3, c5, cp):
        super().__init__()
        self.branch1 = nn.Sequential(nn.Conv2d(cin, c1, 1), nn.ReLU())
        self.branch3 = nn.Sequential(nn.Conv2d(cin, c3, 1), nn.ReLU(), nn.Conv2d(c3, c3, 3, padding=1), nn.ReLU())
        self.branch5 = nn.Sequential(nn.Conv2d(cin, c5, 1), nn.ReLU(), nn.Conv2d(c5, c5, 5, padding=2), nn.ReLU())
        self.branch_pool = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), nn.Conv2d(cin, cp, 1), nn.ReLU())

    def forward(self, x):
        return torch.cat((self.branch1(x), self.branch3(x), self.branch5(x), self.branch_pool(x)), 1)


class Net(nn.Module):
    def __init__(self, in_channels=3, num_classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(in_channels, 8, 3, stride=4, padding=1), nn.ReLU())
        self.inception = Inception(8, 4, 4, 2, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(12, num_classes)

    def forward(self, x):
        x = self.inception(self.stem(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))
