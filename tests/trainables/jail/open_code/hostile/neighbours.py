# refused: schema schema; without the screen: ok
import os
import resource
import torch
from torch import nn

low = (3 << 30, 3 << 30)
attempts = [
    lambda: resource.prlimit(os.getppid(), resource.RLIMIT_AS, low),
    lambda: os.sched_setaffinity(os.getppid(), {0}),
    lambda: os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0)),
    lambda: os.sched_setparam(os.getppid(), os.sched_param(0)),
    lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19),
]
for attempt in attempts:
    try:
        attempt()
    except PermissionError:
        continue
    raise AssertionError("the server's own limits were changed")
torch.set_num_threads(2)  # our own threads are our own affair


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
