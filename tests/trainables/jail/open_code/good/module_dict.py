# ok
from collections import OrderedDict

import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({
            "features": nn.Sequential(OrderedDict([
                ("conv", nn.Conv2d(1, 12, 3, stride=2, padding=1)),
                ("norm", nn.BatchNorm2d(12)),
                ("act", nn.LeakyReLU(0.1)),
            ])),
            "pool": nn.AdaptiveAvgPool2d(1),
        })
        self.classifier = nn.Linear(12, 10)

    def forward(self, x):
        for name in ("features", "pool"):
            x = self.parts[name](x)
        return self.classifier(x.flatten(start_dim=1))
