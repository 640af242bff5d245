# refused: shapes schema
from torch import nn


class Net(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        return self.fc(x.flatten(1))
