# refused: shapes shape
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.flat, self.fc = nn.Flatten(), nn.Linear(64, 10)

    def forward(self, x):
        features = self.flat(x)
        return self.fc(features), features
