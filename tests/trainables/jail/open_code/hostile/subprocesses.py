# refused: schema schema; without the screen: shapes sandbox
import subprocess
import torch
from torch import nn

subprocess.run(["touch", "CANARY_FOLDER/subprocess"], check=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
