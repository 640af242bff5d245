# ok; without the screen: ok
import torch
from torch import nn

NAMES = (
    '*/\n#include "/etc/shadow"\n/*',
    "*/\n#ifndef EVIL\nint evil(void) { return 1; }\n#endif\n/*",
    "*/\n#error evil\n/*",
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        for at, name in enumerate(NAMES):
            self.add_module(name, nn.Conv2d(4 if at else 1, 4, 3, padding=1))
        self.fc = nn.Linear(4, 10)

    def forward(self, x):
        for name in NAMES:
            x = torch.relu(self._modules[name](x))
        return self.fc(x.mean((2, 3)))
