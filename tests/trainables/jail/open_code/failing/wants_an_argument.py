# refused: shapes schema
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(64, width)

    def forward(self, x):
        return self.fc(x.flatten(1))
