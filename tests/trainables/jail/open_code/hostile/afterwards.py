# refused: schema schema; without the screen: ok
import atexit
import threading
import torch
from torch import nn


def leave_a_mark():
    with open("CANARY_FOLDER/afterwards", "w") as file:
        file.write("I was here")


atexit.register(leave_a_mark)
threading.Timer(0.5, leave_a_mark).start()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
