# refused: shapes shape
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layers = []
        for width in ((1, 8), (8, 8), (8, 8), (8, 8)):
            layers += [nn.Conv2d(*width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        self.body, self.fc = nn.Sequential(*layers), nn.Linear(8, 10)

    def forward(self, x):
        return self.fc(self.body(x).flatten(1))
