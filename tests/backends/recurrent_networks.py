"""Small recurrent networks: signals of six channels and twelve samples to five classes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

CLASSES, SHAPE = 5, (6, 1, 12)
LOUD = 1.7  # of weights that come small from torch: gates are to reach both ends


class Reader(nn.Module):
    """A recurrent layer, something read of what it gives, a linear layer."""

    def __init__(self, layer: nn.Module, read: Callable[[Any, Any], Tensor], values: int, first: bool = True) -> None:
        super().__init__()
        self.layer, self.read, self.first = layer, read, first
        self.head = nn.Linear(values, CLASSES)
        with torch.no_grad():
            for name, weights in layer.named_parameters():
                weights *= 1 if "starts" in name else LOUD

    def forward(self, x: Tensor) -> Tensor:
        signal = x.squeeze(2)
        every, states = self.layer(signal.transpose(1, 2) if self.first else signal.permute(2, 0, 1))
        logits: Tensor = self.head(self.read(every, states))
        return logits


class Started(nn.Module):
    """A layer that begins with a state that it has learned."""

    def __init__(self, layer: nn.Module, states: int) -> None:
        super().__init__()
        self.layer = layer
        self.starts = nn.ParameterList(nn.Parameter(torch.linspace(-0.9, 0.9, 8)[None, None]) for _ in range(states))

    def forward(self, x: Tensor) -> Any:
        starts = [start.expand(-1, x.size(0), -1) for start in self.starts]
        return self.layer(x, tuple(starts) if len(starts) > 1 else starts[0])


def _last(every: Tensor, _: Any) -> Tensor:
    return every[:, -1]


TWO_WAYS: dict[str, Any] = {"batch_first": True, "bidirectional": True}
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "GRU": lambda: Reader(nn.GRU(6, 8, batch_first=True), _last, 8),
    "GRU, both ways, two layers": lambda: Reader(nn.GRU(6, 7, num_layers=2, **TWO_WAYS), _last, 14),
    "GRU with a start": lambda: Reader(Started(nn.GRU(6, 8, batch_first=True), 1), _last, 8),
    "LSTM, two layers, its state": lambda: Reader(
        nn.LSTM(6, 8, num_layers=2, batch_first=True), lambda _, states: states[0][-1], 8
    ),
    "LSTM, both ways, every step": lambda: Reader(nn.LSTM(6, 5, **TWO_WAYS), lambda every, _: every.flatten(1), 120),
    "LSTM with a start": lambda: Reader(Started(nn.LSTM(6, 8, batch_first=True), 2), _last, 8),
    "LSTM, steps first": lambda: Reader(nn.LSTM(6, 8), lambda every, _: every[-1], 8, first=False),
    "RNN, mean of steps": lambda: Reader(nn.RNN(6, 8, batch_first=True), lambda every, _: every.mean(1), 8),
    "RNN of ReLU, both ways, its states": lambda: Reader(
        nn.RNN(6, 8, nonlinearity="relu", **TWO_WAYS), lambda _, states: states.transpose(0, 1).flatten(1), 16
    ),
}
