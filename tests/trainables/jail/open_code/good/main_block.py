# ok
"""Digit classifier."""
import torch
import torch.nn as nn
from typing import Optional, Tuple


class Net(nn.Module):
    """Two convolutions.

    Args:
        hidden: width of the hidden layer.
    """

    def __init__(self, hidden: int = 24, kernel: Optional[Tuple[int, int]] = None):
        super().__init__()
        kernel = kernel or (3, 3)
        self.conv1 = nn.Conv2d(1, 6, kernel, padding=1)
        self.conv2 = nn.Conv2d(6, 10, kernel, padding=1)
        self.fc1 = nn.Linear(10 * 2 * 2, hidden)
        self.fc2 = nn.Linear(hidden, 10)

    def _features(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        return nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self._features(x).flatten(1)
        return self.fc2(torch.relu(self.fc1(x)))


if __name__ == "__main__":
    model = Net()
    print(model(torch.randn(1, 1, 8, 8)).shape)
    print(sum(p.numel() for p in model.parameters()))
