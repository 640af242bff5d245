"""The graph as a PyTorch module: the general-purpose model builder of paper 000, section III-B."""

import re
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from automcu_ray.networks.graph import Graph, Op

NAME_SEPARATOR = "__"  # torch allows no dot in a module's name
_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "none": nn.Identity,
    "relu": partial(nn.ReLU, inplace=True),  # nothing else reads what it overwrites: a tenth less to move in training
    "relu6": partial(nn.ReLU6, inplace=True),
    "sigmoid": nn.Sigmoid,
}


class Network(nn.Module):
    """Runs the operators of a graph in order.

    Input (N, *graph.input_shape) float32, output (N, num_classes) float32 logits. One submodule an operator,
    named after it (`layer_2.expand` is `layers.layer_2__expand`), so that a checkpoint, an ONNX node and a linker's
    complaint name the layer that they are about.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.layers = nn.ModuleDict({op.name.replace(".", NAME_SEPARATOR): _module(op) for op in graph.ops})

    def forward(self, images: Tensor) -> Tensor:
        values: list[Tensor] = []
        for op, layer in zip(self.graph.ops, self.layers.values(), strict=True):
            values.append(layer(*(images if index < 0 else values[index] for index in op.inputs)))
        return values[-1]


class Join(nn.Module):
    """Sum, product or concatenation of two tensors, then an activation; a module, so that ONNX names it."""

    def __init__(self, kind: str, activation: nn.Module) -> None:
        super().__init__()
        self.kind, self.activation = kind, activation

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        if self.kind == "add":
            joined = left + right
        elif self.kind == "mul":
            joined = left * right
        else:
            joined = torch.cat((left, right), dim=1)
        result: Tensor = self.activation(joined)
        return result


def _module(op: Op) -> nn.Module:
    activation: nn.Module = _ACTIVATIONS[op.activation]()
    window: dict[str, Any] = {"kernel_size": op.kernel, "stride": op.stride, "padding": op.padding}
    if op.flat:
        window = {"kernel_size": op.window, "stride": (1, op.stride), "padding": (0, op.padding)}
    if op.kind == "conv":
        bias = op.has_bias and not op.use_bn
        conv = nn.Conv2d(op.in_shape[0], op.shape[0], **window, dilation=op.dilation, groups=op.groups, bias=bias)
        norm: nn.Module = nn.BatchNorm2d(op.shape[0]) if op.use_bn else nn.Identity()
        return nn.Sequential(conv, norm, activation)
    if op.kind == "norm":
        return nn.Sequential(nn.BatchNorm2d(op.shape[0]), activation)
    if op.kind == "relu":
        return nn.ReLU()
    if op.kind == "linear":
        linear = nn.Sequential(nn.Flatten(), nn.Linear(prod(op.in_shape), op.shape[0]))
        return linear if op.activation == "none" else linear.append(activation)
    if op.kind == "max_pool":
        return nn.MaxPool2d(**window)
    if op.kind == "avg_pool":
        return nn.AvgPool2d(**window, count_include_pad=False)
    if op.kind == "global_pool":
        return nn.AdaptiveAvgPool2d(1)
    return Join(op.kind, activation)


def spec_names(text: str) -> str:
    """Return a toolchain's message with the paths of ONNX nodes replaced by the names of the spec's operators.

    A node of generated code becomes the name of its module: `/body/body.0/Conv_quant` is `body.0`.
    """
    named = re.sub(
        rf"\S*?((?:(?:layer|cell|reduce)_\d+|stem|head){NAME_SEPARATOR}[a-z0-9_]+?)(?:[./][^\s,;]*|_quant)*(?=[\s,;]|$)",
        lambda found: found[1].replace(NAME_SEPARATOR, "."),
        text,
    )
    return re.sub(r"(?:/[\w.]+)*/([\w.]+)/\w+_quant\b", r"\1", named)
