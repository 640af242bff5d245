# ok
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, widths=(8, 12, 16)):
        super().__init__()
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        previous = 1
        for width in widths:
            self.convs.append(nn.Conv2d(previous, width, 3, padding=1, bias=False))
            self.norms.append(nn.BatchNorm2d(width))
            previous = width
        self.act = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(previous, 10)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = self.pool(self.act(norm(conv(x))))
        return self.fc(x.squeeze(-1).squeeze(-1))
