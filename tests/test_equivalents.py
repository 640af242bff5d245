"""Rewritten operators give what they gave before, and reach int8."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from automcu_ray.export import deploy, normalize, operators
from tests.networks_for_export import CLASSES, SHAPE, images


class Mean(nn.Module):
    def __init__(self, dims: tuple[int, ...], keepdim: bool) -> None:
        super().__init__()
        self.dims, self.keepdim = dims, keepdim

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(self.dims, keepdim=self.keepdim).flatten(1)


def ending(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 3), *layers).train()


def trained(network: nn.Module) -> nn.Module:
    with torch.no_grad():
        network(torch.from_numpy(normalize(images(32))))
    return network.eval()


@pytest.mark.parametrize("dims", [(2, 3), (-1, -2), (3, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_a_mean_over_all_pixels_is_global_pooling(dims: tuple[int, ...], keepdim: bool) -> None:
    network = trained(ending(Mean(dims, keepdim), nn.Linear(6, CLASSES)))
    made = deploy(network, SHAPE, precision="float32", calibration=images(1))
    with torch.no_grad():
        expected = network(torch.from_numpy(normalize(images(5)))).numpy()
    np.testing.assert_allclose(made.run(images(5)), expected, rtol=1e-4, atol=1e-5)
    assert "ReduceMean" not in operators(made.onnx)
    int8 = deploy(network, SHAPE, precision="int8", calibration=images(16))
    assert "QLinearGlobalAveragePool" in operators(int8.onnx)


def test_a_mean_over_rows_alone_stays_what_it_is() -> None:
    network = ending(Mean((2,), False), nn.Linear(60, CLASSES))
    made = deploy(network, SHAPE, precision="float32", calibration=images(1))
    assert "ReduceMean" in operators(made.onnx)


def test_a_norm_before_its_convolution_is_a_depthwise_one() -> None:
    layers = (nn.ReLU(), nn.BatchNorm2d(6), nn.Conv2d(6, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, CLASSES))
    network = trained(ending(*layers))
    made = deploy(network, SHAPE, precision="float32", calibration=images(1))
    with torch.no_grad():
        expected = network(torch.from_numpy(normalize(images(5)))).numpy()
    np.testing.assert_allclose(made.run(images(5)), expected, rtol=1e-4, atol=1e-5)
    assert "BatchNormalization" not in operators(made.onnx)
    assert set(operators(deploy(network, SHAPE, precision="int8", calibration=images(16)).onnx)) == {
        "Flatten",
        "QGemm",
        "QLinearConv",
    }
