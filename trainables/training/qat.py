"""Quantisation-aware training: a network that computes in float as its int8 form will, rounding included.

torchao's own quantisation-aware training knows linear layers and embeddings; its way for convolutions starts from
torch.export and quantisers of other chips. So this is PyTorch's two fake-quantisation operators and no more.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.fusion import fuse_conv_bn_eval

from automcu_ray.deploy.torch_network import Network

INT8 = (-128, 127)
WEIGHTS = 127  # weights are symmetric: -127 to 127
SMALLEST_SCALE = 1e-8  # a channel of zeros has a scale too
FOLLOWING = 0.01  # how much of each batch's extremes goes into a range


class Rounded(nn.Module):
    """A trained network with batch norms folded, whose weights and activations lie on the grid that int8 has.

    The grids are onnxruntime's: a symmetric one for each channel of weights, one with a zero point for what each
    operator gives, after its activation; a max pool's is that of its input. Biases stay as they are: their 32 bits
    round nothing of note. Input (N, C, H, W) of whole pixels, which int8 holds exactly; output float32 logits.

    Source: Jacob et al. 2018, arXiv:1712.05877, section 3. Gradients pass rounding as if it were not there
    (straight-through); where a value was clipped to the range they are 0.
    """

    def __init__(self, network: Network, images: Tensor) -> None:
        """Fold a copy of a network; the ranges begin as the extremes over normalised images (N, C, H, W)."""
        super().__init__()
        self.folded = _folded(network)
        grids = [nn.Identity() if op.kind == "max_pool" else _Grid() for op in network.graph.ops]
        self.grids = nn.ModuleList(grids)
        self.to(images.device)
        with torch.no_grad():
            self.train()(images)
        for layer in _with_weights(self.folded):
            parametrize.register_parametrization(layer, "weight", _WeightGrid())

    def forward(self, images: Tensor) -> Tensor:
        with torch.autocast(images.device.type, enabled=False):  # bfloat16 has too few digits for this
            values: list[Tensor] = []
            layers = self.folded.layers.values()
            for op, layer, grid in zip(self.folded.graph.ops, layers, self.grids, strict=True):
                given = layer(*(images if index < 0 else values[index] for index in op.inputs))
                values.append(grid(given))
        return values[-1]

    def shipped(self) -> Network:
        """Return the float network to export, once, at the end: its weights are rounded, its activations are not."""
        for layer in _with_weights(self.folded):
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
        return self.folded.eval()


class _WeightGrid(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        scale = (weight.detach().flatten(1).abs().amax(1) / WEIGHTS).clamp(min=SMALLEST_SCALE)
        return torch.fake_quantize_per_channel_affine(weight, scale, torch.zeros_like(scale), 0, -WEIGHTS, WEIGHTS)


class _Grid(nn.Module):
    """Rounds a tensor in its range, which always has zero in it and, in training, slowly follows the extremes seen.

    The first tensor sets the range and is not rounded: onnxruntime calibrates in float, too.
    """

    low: Tensor
    high: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.zeros(()))
        self.is_set = False

    def forward(self, values: Tensor) -> Tensor:
        if self.training:
            for bound, seen in zip((self.low, self.high), values.detach().aminmax(), strict=True):
                bound.lerp_(seen, FOLLOWING if self.is_set else 1.0)
            self.low.clamp_(max=0)
            self.high.clamp_(min=0)
        if not self.is_set:
            self.is_set = True
            return values
        scale = ((self.high - self.low) / (INT8[1] - INT8[0])).clamp(min=SMALLEST_SCALE)
        zero = (INT8[0] - self.low / scale).round().to(torch.int32)
        return torch.fake_quantize_per_tensor_affine(values, scale, zero, *INT8)


def _folded(network: Network) -> Network:
    """Return a copy whose convolutions have taken in the batch norms behind them; lone norms become convolutions."""
    folded = copy.deepcopy(network).eval()
    for op, layer in zip(folded.graph.ops, folded.layers.values(), strict=True):
        children: Any = layer  # a sequence of them where there is a norm
        if op.kind == "conv" and op.use_bn:
            children[0], children[1] = fuse_conv_bn_eval(children[0], children[1]), nn.Identity()
        elif op.kind == "norm":
            channels, device = op.shape[0], children[0].weight.device
            copies = nn.Conv2d(channels, channels, 1, groups=channels, bias=False, device=device).eval()
            nn.init.ones_(copies.weight)
            children[0] = fuse_conv_bn_eval(copies, children[0])
    return folded


def _with_weights(network: nn.Module) -> list[nn.Module]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
