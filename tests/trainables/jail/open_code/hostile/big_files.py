# refused: schema schema; without the screen: ok
import os
import torch
from torch import nn

for folder in ("/", "/dev", "/dev/shm", "/etc", "/home", "/proc", "/run", "/tmp", "/usr", "/var/tmp", "CHECKOUT", "."):
    try:
        with open(os.path.join(folder, "big"), "wb") as file:
            file.write(b"0" * (1 << 30))
        raise SystemExit("wrote to " + folder)
    except OSError:
        pass


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
