# ok
import math
from torch import nn


def make_divisible(value: float, divisor: int = 4) -> int:
    return max(divisor, int(value + divisor / 2) // divisor * divisor)


def conv_bn(cin: int, cout: int, k: int = 3, s: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(cin, cout, k, s, k // 2, bias=False), nn.BatchNorm2d(cout), nn.ReLU(True))


class Net(nn.Module):
    def __init__(self, multiplier: float = 0.5, depth: int = 2):
        super().__init__()
        widths = [make_divisible(16 * multiplier * math.sqrt(2) ** i) for i in range(depth + 1)]
        layers = [conv_bn(1, widths[0])]
        layers += [conv_bn(a, b, s=2) for a, b in zip(widths, widths[1:])]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))

    def forward(self, x):
        return self.classifier(self.features(x))
