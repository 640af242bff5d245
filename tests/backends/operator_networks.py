"""Small networks, one for each torch module or function that a person would use: all of (3, 12, 12) to 5 classes."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES, SHAPE = 5, (3, 12, 12)


class Middle(nn.Module):
    """conv, what is tried on (N, 8, 12, 12), global mean, linear."""

    def __init__(self, middle: Callable[[Tensor], Tensor], channels: int = 8) -> None:
        super().__init__()
        self.stem, self.middle = nn.Conv2d(3, 8, 3, padding=1), middle
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.middle(self.stem(x))
        logits: Tensor = self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return logits


class Tail(nn.Module):
    """conv, a coarse map, what is tried on (N, 8, 4, 4), a linear layer over all that is left."""

    def __init__(self, tail: Callable[[Tensor], Tensor], values: int) -> None:
        super().__init__()
        self.stem, self.tail = nn.Conv2d(3, 8, 3, stride=3), tail
        self.head = nn.Linear(values, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.tail(self.stem(x)).flatten(1))
        return logits


class Tokens(nn.Module):
    """What is tried on 16 tokens of 8 channels, (N, 16, 8); where `first` is not set, on (16, N, 8)."""

    def __init__(self, layer: Callable[[Tensor], Tensor], first: bool = True) -> None:
        super().__init__()
        self.layer, self.order = layer, (0, 2, 1) if first else (2, 0, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = self.layer(x.flatten(2).permute(self.order))
        return found if self.order[0] == 0 else found.permute(1, 0, 2)


class Attention(nn.Module):
    """nn.MultiheadAttention of a sequence with itself."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(8, 2, batch_first=first)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x, x, x, need_weights=False)[0]
        return found


class HandMade(nn.Module):
    """Attention as people write it: one linear layer for queries, keys and values of all heads, taken apart."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.parts, self.fused = nn.Linear(8, 24), fused

    def forward(self, x: Tensor) -> Tensor:
        count, tokens, channels = x.shape
        query, key, value = self.parts(x).reshape(count, tokens, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            mixed = F.scaled_dot_product_attention(query, key, value)
        else:
            mixed = torch.softmax(query @ key.transpose(-2, -1) / 4**0.5, -1) @ value
        return mixed.transpose(1, 2).reshape(count, tokens, channels)


class ClassToken(nn.Module):
    """A learned token before the others, and learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 17, 8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places


class ByHead(nn.Module):
    """A matrix of its own for each of two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(-1, 16, 2, 4).transpose(1, 2) @ self.weight


class Mixer(nn.Module):
    """A layer of MLP-Mixer that mixes tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(8), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.mix(self.norm(x).transpose(1, 2))
        return x + mixed.transpose(1, 2)


def shifted_windows(x: Tensor) -> Tensor:
    """Attention within windows of 2x2 pixels of (N, 8, 4, 4), which are moved by one pixel before."""
    count = x.shape[0]
    moved = torch.roll(x.permute(0, 2, 3, 1), (-1, -1), (1, 2))
    apart = moved.view(count, 2, 2, 2, 2, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 8)
    mixed = torch.softmax(apart @ apart.transpose(1, 2), -1) @ apart
    return mixed.view(count, 2, 2, 2, 2, 8).permute(0, 1, 3, 2, 4, 5).reshape(count, 4, 4, 8)


class Signal(nn.Module):
    """Rows as channels of a signal of 36 samples: what is tried on (N, 12, 36)."""

    def __init__(self, middle: nn.Module, values: int) -> None:
        super().__init__()
        self.middle, self.head = middle, nn.Linear(values, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.middle(x.reshape(-1, 12, 36)).flatten(1)
        logits: Tensor = self.head(x)
        return logits


class _First(nn.Module):
    """The first of what a recurrent layer gives."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)[0]
        return found


class _Cell(_First):
    """The cell state that an LSTM ends with."""

    def forward(self, x: Tensor) -> Tensor:
        cell: Tensor = self.layer(x)[1][1][0]
        return cell


def _linear(middle: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, stride=3), nn.Flatten(), nn.Linear(64, 16), middle, nn.Linear(16, CLASSES))


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {  # of each value alone
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "mish": F.mish,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "logsigmoid": F.logsigmoid,
    "tanhshrink": F.tanhshrink,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 0.0),
    "abs": torch.abs,
    "square": lambda x: x**2,
    "cube": lambda x: x**3,
    "sqrt of abs": lambda x: torch.sqrt(x.abs() + 0.01),
    "exp": torch.exp,
    "log": lambda x: torch.log(x.abs() + 1),
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "atan": torch.atan,
    "sign": lambda x: x * torch.sign(x),
    "neg": lambda x: -x,
    "reciprocal": lambda x: 1 / (x.abs() + 1),
    "half": lambda x: x / 2,
    "times": lambda x: x * 3,
    "one minus": lambda x: 1 - x,
    "plus": lambda x: x + 0.5,
    "minus": lambda x: x - 0.25,
    "clamp": lambda x: x.clamp(-0.3, 0.4),
    "clamp min": lambda x: x.clamp(min=-0.1),
    "maximum": lambda x: torch.maximum(x, torch.tensor(0.1)),
    "round": lambda x: torch.round(x * 4) / 4,
    "floor": lambda x: torch.floor(x * 4),
    "where": lambda x: torch.where(x > 0, x, 0.2 * x),
    "float": lambda x: x.float() * 1.5,
    "swish by hand": lambda x: x * torch.sigmoid(1.702 * x),
    "square of relu": lambda x: F.relu(x) ** 2,
}

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "PReLU": lambda: Middle(nn.PReLU()),
    "PReLU by channel": lambda: Middle(nn.PReLU(8)),
    "BatchNorm1d behind Linear": lambda: _linear(nn.BatchNorm1d(16)),
    "BatchNorm1d and ReLU behind Linear": lambda: _linear(nn.Sequential(nn.BatchNorm1d(16), nn.ReLU())),
    "LayerNorm": lambda: Middle(nn.LayerNorm([8, 12, 12])),
    "LayerNorm of channels": lambda: Middle(
        lambda x: F.layer_norm(x.permute(0, 2, 3, 1), [8], torch.arange(1.0, 9.0)).permute(0, 3, 1, 2)
    ),
    "LayerNorm of a LayerNorm": lambda: Tail(Tokens(lambda x: F.layer_norm(60 * F.layer_norm(x, [8]), [8])), 128),
    "LayerNorm behind Linear": lambda: _linear(nn.LayerNorm(16)),
    "InstanceNorm2d": lambda: Tail(nn.InstanceNorm2d(8), 128),
    "GroupNorm": lambda: Tail(nn.GroupNorm(2, 8), 128),
    "Dropout": lambda: _linear(nn.Dropout()),
    "Identity": lambda: _linear(nn.Identity()),
    "GELU behind Linear": lambda: _linear(nn.GELU()),
    "BatchNorm2d before Conv2d": lambda: Middle(nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1))),
    "Conv2d of groups": lambda: Middle(nn.Conv2d(8, 8, 3, padding=1, groups=2)),
    "Conv2d of dilation": lambda: Middle(nn.Conv2d(8, 8, 3, padding=2, dilation=2)),
    "Conv2d same": lambda: Middle(nn.Conv2d(8, 8, 4, padding="same")),
    "Conv2d reflect": lambda: Middle(nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")),
    "ConvTranspose2d 2, 2": lambda: Middle(nn.ConvTranspose2d(8, 8, 2, stride=2)),
    "ConvTranspose2d 3, 2": lambda: Middle(nn.ConvTranspose2d(8, 8, 3, stride=2, padding=1, output_padding=1)),
    "ConvTranspose2d 3, 1": lambda: Middle(nn.ConvTranspose2d(8, 6, 3, padding=1), 6),
    "PixelShuffle": lambda: Middle(nn.PixelShuffle(2), 2),
    "PixelUnshuffle": lambda: Middle(nn.PixelUnshuffle(2), 32),
    "ChannelShuffle": lambda: Middle(nn.ChannelShuffle(2)),
    "channel shuffle by hand": lambda: Middle(
        lambda x: x.view(x.size(0), 2, 4, 12, 12).transpose(1, 2).reshape(x.size(0), 8, 12, 12)
    ),
    "Upsample": lambda: Middle(nn.Upsample(scale_factor=2)),
    "Upsample by size": lambda: Middle(nn.Upsample(size=(24, 24))),
    "Upsample bilinear": lambda: Middle(nn.Upsample(scale_factor=2, mode="bilinear")),
    "Upsample bilinear, corners": lambda: Middle(nn.Upsample(size=(18, 30), mode="bilinear", align_corners=True)),
    "interpolate bicubic": lambda: Middle(lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic")),
    "MaxPool2d": lambda: Middle(nn.MaxPool2d(2)),
    "MaxPool2d ceil": lambda: Middle(nn.MaxPool2d(5, 2, ceil_mode=True)),
    "AvgPool2d": lambda: Middle(nn.AvgPool2d(3, 2, 1)),
    "AdaptiveAvgPool2d 3": lambda: Tail(nn.Sequential(nn.Upsample(scale_factor=3), nn.AdaptiveAvgPool2d(3)), 72),
    "AdaptiveAvgPool2d 5 of 12": lambda: Tail(nn.Sequential(nn.Upsample(scale_factor=3), nn.AdaptiveAvgPool2d(5)), 200),
    "AdaptiveMaxPool2d 1": lambda: Tail(nn.AdaptiveMaxPool2d(1), 8),
    "AdaptiveMaxPool2d 2": lambda: Tail(nn.AdaptiveMaxPool2d(2), 32),
    "ZeroPad2d": lambda: Middle(nn.ZeroPad2d(2)),
    "ZeroPad2d and Conv2d": lambda: Middle(nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(8, 8, 3, stride=2))),
    "ConstantPad2d": lambda: Middle(nn.ConstantPad2d(1, 0.5)),
    "ReflectionPad2d": lambda: Middle(nn.ReflectionPad2d(1)),
    "ReplicationPad2d": lambda: Middle(nn.ReplicationPad2d(1)),
    "mean of pixels": lambda: Tail(lambda x: x.mean((2, 3)), 8),
    "mean of a row": lambda: Tail(lambda x: x.mean(3), 32),
    "mean of channels": lambda: Tail(lambda x: x.mean(1, keepdim=True), 16),
    "sum of pixels": lambda: Tail(lambda x: x.sum((2, 3)), 8),
    "sum of channels": lambda: Tail(lambda x: x.sum(1), 16),
    "amax of pixels": lambda: Tail(lambda x: x.amax((2, 3)), 8),
    "amax of channels": lambda: Tail(lambda x: x.amax(1), 16),
    "max of channels": lambda: Tail(lambda x: x.max(1).values, 16),
    "mean and max of channels": lambda: Middle(
        lambda x: x * torch.sigmoid(torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1).mean(1, True))
    ),
    "add": lambda: Middle(lambda x: x + x.relu()),
    "sub": lambda: Middle(lambda x: x - x.relu() * 0.5),
    "mul": lambda: Middle(lambda x: x * x.relu()),
    "sub of a mean": lambda: Middle(lambda x: (x - x.mean((2, 3), keepdim=True)).relu()),
    "cat": lambda: Middle(lambda x: torch.cat([x, x.relu()], 1), 16),
    "cat of rows": lambda: Middle(lambda x: torch.cat([x, x.relu()], 2)),
    "slice of channels": lambda: Middle(lambda x: x[:, :4], 4),
    "slice of rows": lambda: Middle(lambda x: x[:, :, 1:-1, 2:]),
    "slice of every second": lambda: Middle(lambda x: x[:, :, ::2, 1::2]),
    "split of columns": lambda: Middle(lambda x: torch.cat(torch.split(x, [5, 7], 3)[::-1], 3)),
    "chunk": lambda: Middle(lambda x: torch.cat(x.chunk(2, 1)[::-1], 1)),
    "split": lambda: Middle(lambda x: (lambda a, b: a * 2 + b[:, :3].sum(1, True))(*x.split([3, 5], 1)), 3),
    "tensor_split": lambda: Middle(
        lambda x: torch.cat(x.tensor_split(3, 1)[::-1] + x.tensor_split([2, 5], 1)[1:], 1), 14
    ),
    "gate": lambda: Middle(lambda x: (lambda a, b: a * torch.sigmoid(b))(*x.chunk(2, 1)), 4),
    "glu": lambda: Middle(lambda x: F.glu(x, 1), 4),
    "flip": lambda: Tail(lambda x: x.flip(3), 128),
    "roll": lambda: Tail(lambda x: x.roll(1, 2), 128),
    "permute": lambda: Tail(lambda x: x.permute(0, 2, 3, 1), 128),
    "transpose": lambda: Tail(lambda x: x.transpose(1, 2), 128),
    "flatten 2": lambda: Tail(lambda x: x.flatten(2).mean(2), 8),
    "tokens": lambda: Tail(lambda x: x.flatten(2).transpose(1, 2).mean(1), 8),
    "Linear of tokens": lambda: Tail(nn.Sequential(nn.Flatten(2), nn.Linear(16, 4)), 32),
    "unsqueeze": lambda: Tail(lambda x: x.unsqueeze(1).squeeze(1), 128),
    "expand": lambda: Middle(lambda x: x + x.mean((2, 3), keepdim=True).expand(-1, -1, 12, 12)),
    "repeat": lambda: Middle(lambda x: x.repeat(1, 2, 1, 1), 16),
    "Conv1d": lambda: Signal(nn.Conv1d(12, 6, 3, padding=1), 216),
    "Conv1d and BatchNorm1d": lambda: Signal(nn.Sequential(nn.Conv1d(12, 6, 3), nn.BatchNorm1d(6), nn.ReLU()), 204),
    "Conv1d depthwise": lambda: Signal(nn.Conv1d(12, 12, 5, stride=2, groups=12), 192),
    "MaxPool1d": lambda: Signal(nn.Sequential(nn.Conv1d(12, 6, 3), nn.ReLU(), nn.MaxPool1d(2)), 102),
    "AvgPool1d": lambda: Signal(nn.Sequential(nn.Conv1d(12, 6, 3), nn.ReLU(), nn.AvgPool1d(2)), 102),
    "AdaptiveAvgPool1d": lambda: Signal(nn.Sequential(nn.Conv1d(12, 6, 3), nn.AdaptiveAvgPool1d(1)), 6),
    "MultiheadAttention": lambda: Tail(Tokens(Attention(True)), 128),
    "MultiheadAttention, tokens first": lambda: Tail(Tokens(Attention(False), first=False), 128),
    "TransformerEncoderLayer": lambda: Tail(Tokens(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)), 128),
    "TransformerEncoderLayer, norm first": lambda: Tail(
        Tokens(nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=True), first=False), 128
    ),
    "attention by hand": lambda: Tail(Tokens(HandMade(False)), 128),
    "scaled_dot_product_attention": lambda: Tail(Tokens(HandMade(True)), 128),
    "class token": lambda: Tail(Tokens(ClassToken()), 136),
    "matrix by head": lambda: Tail(Tokens(ByHead()), 96),
    "shifted windows": lambda: Tail(shifted_windows, 128),
    "mixer of tokens": lambda: Tail(Tokens(Mixer()), 128),
    "matmul": lambda: Tail(lambda x: x @ x.relu(), 128),
    "bmm": lambda: Tail(lambda x: torch.bmm(x.flatten(2), x.flatten(2).transpose(1, 2)), 64),
    "matmul of a constant": lambda: Tail(lambda x: torch.linspace(-1, 1, 20).view(5, 4) @ x, 160),
    "einsum": lambda: Tail(lambda x: torch.einsum("bchw,bcij->bhwij", x, x).mean((3, 4)), 16),
    "einsum of rows": lambda: Tail(lambda x: torch.einsum("nchw,ncvw->nchv", x, x.relu()), 128),
    "softmax": lambda: Middle(lambda x: x * torch.softmax(x, 1)),
    "softmax of rows": lambda: Tail(nn.Softmax(3), 128),
    "Softmax2d": lambda: Middle(nn.Softmax2d()),
    "softmin": lambda: Middle(lambda x: F.softmin(x, 1)),
    "log_softmax": lambda: Tail(nn.LogSoftmax(1), 128),
    "logsumexp": lambda: Tail(lambda x: torch.logsumexp(x, 1), 16),
    "softmax of logits": lambda: _linear(nn.Softmax(1)),
    "mean of a stack": lambda: Middle(lambda x: torch.stack([x, x.relu()]).mean(0)),
    "stack": lambda: Tail(lambda x: torch.stack([x, x.relu()], 2), 256),
    "sequence first": lambda: Tail(lambda x: x.flatten(2).permute(2, 0, 1).softmax(0).permute(1, 0, 2), 128),
    "cumsum": lambda: Middle(lambda x: x.cumsum(2)),
    "cumsum of channels": lambda: Tail(lambda x: x.cumsum(1), 128),
    "product of channels": lambda: Tail(lambda x: (x + 1).prod(1), 16),
    "division of two": lambda: Middle(lambda x: x / (x.mean(1, keepdim=True).abs() + 1)),
    "maximum of two": lambda: Middle(lambda x: torch.maximum(x, x.mean(1, keepdim=True))),
    "minimum of two": lambda: Middle(lambda x: torch.minimum(x, x.mean(1, keepdim=True))),
    "maximum of constants": lambda: Middle(lambda x: torch.maximum(x, torch.linspace(-1, 1, 8).view(8, 1, 1))),
    "minimum of constants": lambda: Middle(lambda x: torch.minimum(x, torch.linspace(-1, 1, 8).view(8, 1, 1))),
    "normalize": lambda: Middle(lambda x: F.normalize(x, dim=1)),
    "norm": lambda: Tail(lambda x: x.norm(dim=1), 16),
    "norm of absolutes": lambda: Tail(lambda x: x.norm(p=1, dim=1), 16),
    "amin": lambda: Tail(lambda x: x.amin(1), 16),
    "std": lambda: Tail(lambda x: x.std((2, 3)), 8),
    "var": lambda: Tail(lambda x: x.var((2, 3)), 8),
    "RMSNorm": lambda: Tail(nn.RMSNorm([8, 4, 4]), 128),
    "LocalResponseNorm": lambda: Middle(nn.LocalResponseNorm(3)),
    "cdist": lambda: Tail(lambda x: torch.cdist(x.flatten(2), x.relu().flatten(2)), 64),
    "GRU": lambda: Signal(_First(nn.GRU(36, 4, batch_first=True)), 48),
    "LSTM": lambda: Signal(_First(nn.LSTM(36, 4, batch_first=True)), 48),
    **{name: (lambda function=function: Middle(function)) for name, function in FUNCTIONS.items()},  # type: ignore[misc]
}

REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {  # with what the refusal names
    "cumprod": (lambda: Middle(lambda x: x.cumprod(2)), "aten::cumprod"),
    "sort": (lambda: Middle(lambda x: x.sort(1).values), "TopK"),
    "grid_sample": (
        lambda: Middle(lambda x: F.grid_sample(x, x.permute(0, 2, 3, 1)[..., :2])),
        "GridSample|grid_sampler",
    ),
    "mean of a batch": (lambda: Middle(lambda x: x - x.mean(0, keepdim=True)), "ReduceMean .* along the images"),
    "softmax of a batch": (lambda: Middle(lambda x: torch.softmax(x, 0)), "Softmax .* along the images"),
    "product of images": (
        lambda: Tail(lambda x: (x.flatten(1) @ x.flatten(1).T) @ x.flatten(1), 128),
        "MatMul .* images",
    ),
    "LSTM's cell": (lambda: Signal(_Cell(nn.LSTM(36, 4, batch_first=True)), 4), "gives its cell state away"),
}
