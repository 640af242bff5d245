# ok
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(
            nn.Conv2d(1, 8, (1, 3), padding=(0, 1)), nn.ReLU(),
            nn.Conv2d(8, 8, (3, 1), padding=(1, 0)), nn.ReLU(),
            nn.Conv2d(8, 12, 3, padding=2, dilation=2), nn.ReLU(),
            nn.AvgPool2d(kernel_size=2, stride=2),
        )
        self.out = nn.Linear(12 * 4 * 4, 10)

    def forward(self, x):
        y = self.f(x)
        return self.out(y.flatten(1))
