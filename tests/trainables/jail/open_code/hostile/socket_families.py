# refused: schema schema; without the screen: ok
import itertools
import socket
import torch
from torch import nn

families = [getattr(socket, name) for name in ("AF_VSOCK", "AF_NETLINK", "AF_INET", "AF_INET6", "AF_UNIX", "AF_PACKET")]
for family, kind in itertools.product(families, (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW)):
    try:
        socket.socket(family, kind)
    except PermissionError:
        continue
    raise AssertionError(f"there is a socket of {family}")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
