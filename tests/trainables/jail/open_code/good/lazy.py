# ok
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.LazyConv2d(8, 3, padding=1),
            nn.LazyBatchNorm2d(),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.LazyConv2d(12, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.LazyLinear(10),
        )

    def forward(self, x):
        return self.net(x)
