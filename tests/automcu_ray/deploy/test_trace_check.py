"""Code that a trace misrepresents is refused by name; code that only looks so is not."""

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import deploy
from automcu_ray.deploy.trace_check import TracedOtherwise, check_trace
from automcu_ray.deploy.tracing import trace

SHAPE = (1, 8, 8)


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 4), nn.Linear(64, 4)
        self.calls = 0


class ByMean(_Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.first(x.flatten(1)) if x.mean() > 0 else self.second(x.flatten(1))


class BySize(_Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.first(x.flatten(1)) if float(x.std()) > 0.1 else self.second(x.flatten(1))


class ByLargest(_Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.first(x.flatten(1)) * x.max().item()


class ByEarlierCalls(_Net):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.first(x.flatten(1)) * self.calls


class ByChance(_Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.first(x.flatten(1)) * random.random()


class InTraining(_Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.first(x.flatten(1)) if self.training and x.sum() > 0 else self.second(x.flatten(1))


class Innocent(_Net):
    """Shapes, a mode, dropout, a choice of values that is part of the graph, a check that always passes."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 100 or x.size(2) != 8 or not torch.isfinite(x).all():
            raise ValueError
        x = nn.functional.dropout(x, 0.5, self.training).flatten(1)
        return torch.where(x.mean(1, keepdim=True) > 0, self.first(x), self.second(x))


@pytest.mark.parametrize("kind", [ByMean, BySize, ByLargest, ByEarlierCalls, ByChance])
def test_code_that_decides_in_python_is_refused(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    with pytest.raises(ToolchainError, match="forward takes another way for other images"):
        deploy(kind().eval(), SHAPE, precision="float32", calibration=np.zeros((1, *SHAPE), np.uint8))


def test_the_line_is_named() -> None:
    with pytest.raises(TracedOtherwise, match=rf"line {ByMean.forward.__code__.co_firstlineno + 1}\)"):
        trace(ByMean(), SHAPE)


def test_each_mode_is_asked_for_itself() -> None:
    trace(InTraining(), SHAPE)
    with pytest.raises(TracedOtherwise):
        trace(InTraining(), SHAPE, training=True)


@pytest.mark.parametrize("training", [False, True])
def test_innocent_code_passes_and_is_left_as_it_was(training: bool) -> None:
    network = nn.Sequential(nn.BatchNorm2d(1), nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 1, 1)), Innocent())
    network.train(training)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    check_trace(network, torch.zeros(2, *SHAPE))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(value.requires_grad for value in network.parameters())
