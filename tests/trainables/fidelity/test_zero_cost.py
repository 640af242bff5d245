"""Zero-cost scores on networks so small that the numbers are worked out by hand."""

import math

import pytest
import torch
from torch import nn

from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.lowering import lower
from automcu_ray.networks.spec import ArchitectureSpec
from trainables.fidelity.zero_cost import ZERO_COST, gradient_norm, naswot, synflow


def network(*layers: dict[str, object]) -> Network:
    """Return a network for 1x2x2 images and two classes."""
    torch.manual_seed(0)
    return Network(lower(ArchitectureSpec.model_validate({"backbone": layers}), (1, 2, 2), 2))


def one_weight(activation: str) -> Network:
    """Return w * image, clipped or not, its mean, then two classes: every weight known, no bias."""
    made = network({"type": "conv", "out_channels": 1, "kernel_size": 1, "use_bn": False, "activation": activation})
    conv, linear = (module for module in made.modules() if isinstance(module, nn.Conv2d | nn.Linear))
    with torch.no_grad():
        conv.weight.fill_(-8.0)
        linear.weight.copy_(torch.tensor([[2.0], [-3.0]]))
        for bias in (conv.bias, linear.bias):
            assert bias is not None
            bias.zero_()
    return made


IMAGES = torch.tensor([[[[1.0, -1.0], [-1.0, -1.0]]], [[[-1.0, 1.0], [-1.0, -1.0]]]])
LABELS = torch.tensor([0, 1])


@pytest.mark.parametrize("activation", ["relu", "relu6"])
def test_synaptic_flow_counts_each_path_once_a_layer_and_is_not_clipped(activation: str) -> None:
    # |8| * (|2| + |-3|) = 40 flows through the convolution, and the same 40 through the linear layer.
    assert synflow(one_weight(activation), IMAGES, LABELS) == pytest.approx(math.log(80))


def test_gradient_norm_of_a_batch() -> None:
    made = one_weight("none")
    for parameter in made.parameters():
        nn.init.zeros_(parameter)
    # All logits are 0, so each class has 1/2: only the linear bias moves, by the mean of (1/2, 1/2) less the labels.
    assert gradient_norm(made, IMAGES, torch.tensor([0, 0])) == pytest.approx(math.sqrt(0.5**2 + 0.5**2))


def test_naswot_is_the_determinant_of_agreements() -> None:
    # The weight is -8: a ReLU is on where the pixel is -1. Of four ReLUs the two images agree in two.
    assert naswot(one_weight("relu"), IMAGES, LABELS) == pytest.approx(math.log(4 * 4 - 2 * 2))


def test_naswot_refuses_images_that_nothing_tells_apart() -> None:
    with pytest.raises(ValueError, match="singular"):
        naswot(one_weight("relu"), IMAGES[:1].repeat(2, 1, 1, 1), LABELS)


@pytest.mark.parametrize("score", ZERO_COST.values(), ids=ZERO_COST.keys())
def test_every_score_is_finite_for_every_kind_of_layer(score: object) -> None:
    layers = [
        {"type": "conv", "out_channels": 4, "activation": "relu6"},
        {"type": "residual", "out_channels": 4},
        {"type": "mbconv", "out_channels": 6, "se_ratio": 0.25},
        {"type": "ghost", "out_channels": 8},
    ]
    made = network(*layers)
    images = torch.randn(8, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    value = score(made, images, torch.arange(8) % 2)  # type: ignore[operator]
    assert math.isfinite(value)


def test_what_is_summed_lies_where_the_images_do(monkeypatch: pytest.MonkeyPatch) -> None:
    devices, zeros = [], torch.zeros
    monkeypatch.setattr(
        torch, "zeros", lambda *shape, **about: devices.append(about["device"]) or zeros(*shape, **about)
    )
    naswot(one_weight("relu").eval(), IMAGES, LABELS)
    assert devices == [IMAGES.device]
