# refused: shapes memory
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(64, 1 << 24)
        self.fc = nn.Linear(1 << 24, 10)

    def forward(self, x):
        return self.fc(self.wide(x.flatten(1)))
