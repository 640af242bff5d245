# ok
import torch
import torch.nn as nn


class Net(nn.Module):
    class ConvBlock(nn.Module):
        def __init__(self, cin, cout):
            super().__init__()
            self.conv = nn.Conv2d(cin, cout, 3, 1, 1)

        def forward(self, x):
            return torch.relu(self.conv(x))

    def __init__(self):
        super().__init__()
        self.a = Net.ConvBlock(1, 6)
        self.b = self.ConvBlock(6, 12)
        self.fc = nn.Linear(12 * 16, 10)

    def forward(self, x):
        x = nn.functional.avg_pool2d(self.b(self.a(x)), 2)
        return self.fc(x.view(-1, 12 * 16))
