# ok 3x32x32
import torch
import torch.nn as nn


class Fire(nn.Module):
    def __init__(self, inplanes, squeeze, expand):
        super(Fire, self).__init__()
        self.squeeze = nn.Conv2d(inplanes, squeeze, kernel_size=1)
        self.expand1x1 = nn.Conv2d(squeeze, expand, kernel_size=1)
        self.expand3x3 = nn.Conv2d(squeeze, expand, kernel_size=3, padding=1)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.activation(self.squeeze(x))
        return torch.cat([self.activation(self.expand1x1(x)), self.activation(self.expand3x3(x))], 1)


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, kernel_size=3, stride=2, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            Fire(16, 4, 8), nn.MaxPool2d(2), Fire(16, 8, 16),
        )
        self.classifier = nn.Sequential(nn.Dropout(p=0.5), nn.Conv2d(32, 10, kernel_size=1), nn.AdaptiveAvgPool2d((1, 1)))

    def forward(self, x):
        return torch.flatten(self.classifier(self.features(x)), 1)
