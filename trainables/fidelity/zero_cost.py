"""Scores of an untrained network: proxies that cost one batch. More is said to be better in all of them."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from automcu_ray.deploy.torch_network import Network

IMAGES = 64  # the batch; Mellor et al. take 128, Abdelfattah et al. 64


def synflow(network: Network, images: Tensor, labels: Tensor) -> float:
    """Return the logarithm of the synaptic flow: the sum of |weight * gradient|, all weights positive, all pixels 1.

    Batch norm is the identity (untrained, evaluation mode), and ReLU6 does not clip. Changes the network's weights.

    Raises:
        ValueError: nothing flows.

    Source: Tanaka et al. 2020 (arXiv:2006.05467), as a score of whole networks: Abdelfattah et al. 2021
    (arXiv:2101.08134).
    """
    for module in network.modules():
        if isinstance(module, nn.Sequential) and isinstance(module[-1], nn.ReLU6):
            module[-1] = nn.Identity()  # nothing is negative here, and what is clipped has no gradient
    network.double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.abs_()
    flow = network(torch.ones_like(images[:1], dtype=torch.float64)).sum()
    gradients = torch.autograd.grad(flow, list(network.parameters()))
    total = sum(float((g * p.detach()).abs().sum()) for g, p in zip(gradients, network.parameters(), strict=True))
    return math.log(total)


def gradient_norm(network: Network, images: Tensor, labels: Tensor) -> float:
    """Return the Euclidean norm of the loss's gradient on the batch (Abdelfattah et al. 2021, arXiv:2101.08134)."""
    loss = functional.cross_entropy(network.train()(images), labels)
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    return math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))


def naswot(network: Network, images: Tensor, labels: Tensor) -> float:
    """Return the log-determinant of how often pairs of images agree in which ReLUs are on (Mellor et al. 2021, v3).

    Raises:
        ValueError: there is no ReLU, or all images turn the same ones on.

    Source: arXiv:2006.04647, equation 2.
    """
    agreement = torch.zeros(len(images), len(images), dtype=torch.float64, device=images.device)

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        on = (output.detach() > 0).flatten(1).double()
        agreement.add_(on @ on.T + (1 - on) @ (1 - on).T)

    for module in network.modules():
        if isinstance(module, nn.ReLU | nn.ReLU6):
            module.register_forward_hook(count)
    with torch.no_grad():
        network.train()(images)
    sign, logarithm = torch.linalg.slogdet(agreement)
    if sign <= 0:
        raise ValueError("the kernel of ReLU patterns is singular: all images look the same to the network")
    return float(logarithm)


ZeroCost = Callable[[Network, Tensor, Tensor], float]
ZERO_COST: dict[str, ZeroCost] = {"synflow": synflow, "gradient norm": gradient_norm, "NASWOT": naswot}
