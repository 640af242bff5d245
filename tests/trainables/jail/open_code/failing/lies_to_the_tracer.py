# refused: convert operator
from torch import nn


class Net(nn.Module):
    """Bright images take another layer: an exported network would take one for all."""

    def __init__(self):
        super().__init__()
        self.dark, self.bright = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, x):
        x = x.flatten(1)
        return self.bright(x) if x.mean() > 0 else self.dark(x)
