"""Rewritten operators give what they gave before, and reach int8."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from automcu_ray.deploy.export import DeployedNetwork, deploy, normalize, operators
from automcu_ray.testing.networks import CLASSES, SHAPE, images
from tests.backends.forms import Gated


def low() -> nn.Module:
    """A batch norm after which most values, and most maxima of four, are negative."""
    norm = nn.BatchNorm2d(6)
    nn.init.constant_(norm.bias, -1.0)
    return norm


class PreActivation(nn.Module):
    """What a convolution reads rectified, a skip reads as it is."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation, self.conv = activation, nn.Conv2d(6, 6, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(self.activation(x))


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


def deploy_equal(network: nn.Module) -> DeployedNetwork:
    """Return the network in float32, after checking that it answers what torch answers."""
    made = deploy(network, SHAPE, precision="float32", calibration=images(1))
    with torch.no_grad():
        expected = network(torch.from_numpy(normalize(images(5)))).numpy()
    np.testing.assert_allclose(made.run(images(5)), expected, rtol=1e-4, atol=1e-5)
    return made


@pytest.mark.parametrize("dims", [(2, 3), (-1, -2), (3, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_a_mean_over_all_pixels_is_global_pooling(dims: tuple[int, ...], keepdim: bool) -> None:
    network = trained(ending(Mean(dims, keepdim), nn.Linear(6, CLASSES)))
    made = deploy_equal(network)
    assert "ReduceMean" not in operators(made.onnx)
    int8 = deploy(network, SHAPE, precision="int8", calibration=images(16))
    assert "QLinearGlobalAveragePool" in operators(int8.onnx)


@pytest.mark.parametrize(("dims", "values"), [((2,), 60), ((1,), 100), ((1, 3), 10)])
def test_a_mean_over_other_axes_is_pooling_of_as_many_pixels(dims: tuple[int, ...], values: int) -> None:
    network = trained(ending(Mean(dims, False), nn.Flatten(), nn.Linear(values, CLASSES)))
    assert "ReduceMean" not in operators(deploy_equal(network).onnx)


def test_a_norm_before_its_convolution_is_a_depthwise_one() -> None:
    layers = (nn.ReLU(), nn.BatchNorm2d(6), nn.Conv2d(6, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, CLASSES))
    network = trained(ending(*layers))
    made = deploy_equal(network)
    assert "BatchNormalization" not in operators(made.onnx)
    int8 = deploy(network, SHAPE, precision="int8", calibration=images(16))
    assert operators(int8.onnx) == ("Flatten", "QGemm", "QLinearConv")


@pytest.mark.parametrize(
    "layers",
    [
        (PreActivation(nn.ReLU()), PreActivation(nn.ReLU())),
        (PreActivation(nn.ReLU6()),),
        (low(), nn.MaxPool2d(2), nn.ReLU()),
        (nn.ReLU(), nn.MaxPool2d(2)),
        (nn.Upsample(scale_factor=2), nn.ReLU6()),
        (Gated(6),),
    ],
    ids=["pre-activation", "pre-activation, relu6", "pool first", "pool last", "upsampled", "never above zero"],
)
def test_int8_cuts_what_a_relu_cuts_wherever_it_stands(layers: tuple[nn.Module, ...]) -> None:
    made = trained(ending(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, CLASSES)))
    int8 = deploy(made, SHAPE, precision="int8", calibration=images(64))
    with torch.no_grad():
        expected = made(torch.from_numpy(normalize(images(64)))).numpy()
    assert int8.output_scale is not None and int8.output_zero_point is not None
    answered = (int8.run(images(64)).astype(np.float32) - int8.output_zero_point) * int8.output_scale
    assert np.abs(answered - expected).max() < 0.1 * expected.std()  # a ReLU that is left out: 0.4 and more


def test_a_relu_behind_a_convolution_of_its_own_costs_no_operator() -> None:
    network = trained(ending(nn.ReLU(), Mean((2, 3), False), nn.Linear(6, CLASSES)))
    assert "QLinearLeakyRelu" not in operators(deploy(network, SHAPE, precision="int8", calibration=images(16)).onnx)
