"""Networks that move the images of a batch: as deployed, each answers for any number of images, and for each alone."""

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.adoption import adopt
from automcu_ray.deploy.export import deploy, deploy_traced, normalize
from automcu_ray.deploy.pixels import KNOWN
from automcu_ray.testing.networks import images
from tests.backends.operator_networks import SHAPE, Attention, ClassToken, HandMade, Tail, Tokens, shifted_windows

Forward = Callable[[Tensor], Tensor]


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.layer = kind(8, 6, bidirectional=True)  # type: ignore[call-arg]

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)[0]
        return found


MOVED: dict[str, tuple[Callable[[], Forward], int]] = {
    "attention": (lambda: Tokens(Attention(True)), 128),
    "attention, tokens first": (lambda: Tokens(Attention(False), first=False), 128),
    "queries, keys, values": (lambda: Tokens(HandMade(False)), 128),
    "windows": (lambda: shifted_windows, 128),
    "a class token": (lambda: Tokens(ClassToken()), 136),
    "stack": (lambda: lambda x: torch.stack([x, x.relu(), x.sigmoid()]).amax(0), 128),
    "images last": (lambda: lambda x: x.permute(1, 2, 3, 0).cumsum(1).permute(3, 0, 1, 2), 128),
    "images in the middle": (lambda: lambda x: (x.transpose(0, 1) * torch.arange(4.0)).transpose(0, 1), 128),
    "a slice of each": (lambda: lambda x: x.transpose(0, 2)[1:3, 2:].transpose(0, 2), 48),
    "pads of each": (lambda: lambda x: F.pad(x.flatten(2).transpose(0, 1), (1, 2), "replicate").transpose(0, 1), 152),
    "repeats of each": (lambda: lambda x: x.transpose(0, 1).repeat(2, 1, 1, 1).transpose(0, 1), 256),
    "expanded": (lambda: lambda x: (x[None].expand(3, -1, -1, -1, -1) * torch.ones(3, 1, 1, 1, 1)).sum(0), 128),
    "halves": (lambda: lambda x: torch.cat(x.transpose(0, 1).chunk(2), 2).transpose(0, 1), 128),
    "a norm": (lambda: Tokens(nn.LayerNorm(8), first=False), 128),
    "a state of zeros": (lambda: lambda x: x + x.new_zeros(x.size(0), 8, 1, 1) + 1, 128),
    "a linear layer of all tokens": (lambda: lambda x: _linear(x), 96),
    "products of both sides": (
        lambda: lambda x: torch.einsum("bchw,dc->bdhw", x, torch.linspace(-1, 1, 48).view(6, 8)),
        96,
    ),
    "nothing": (lambda: lambda x: x.unsqueeze(0).flatten(2, 3).squeeze(0), 128),
    "GRU": (lambda: Tokens(Recurrent(nn.GRU), first=False), 192),
    "LSTM": (lambda: Tokens(Recurrent(nn.LSTM), first=False), 192),
}


def _linear(x: Tensor) -> Tensor:
    flat = x.flatten(2).permute(2, 0, 1).reshape(-1, 8)
    made = F.linear(flat, torch.linspace(-1, 1, 48).view(6, 8), torch.arange(6.0))
    return made.view(16, -1, 6).permute(1, 0, 2)


@pytest.mark.parametrize("name", MOVED)
def test_any_number_of_images_gives_the_networks_answers(name: str) -> None:
    torch.manual_seed(0)
    make, values = MOVED[name]
    network, batch = Tail(make(), values).eval(), images(5)
    made = deploy(network, SHAPE, precision="float32", calibration=batch)
    with torch.no_grad():
        wanted = network(torch.from_numpy(normalize(batch))).numpy()
    np.testing.assert_allclose(made.run(batch), wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(made.run(batch[3:4]), wanted[3:4], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("written_for", [1, 3])
@pytest.mark.parametrize(
    "name", ["attention, tokens first", "queries, keys, values", "windows", "a linear layer of all tokens", "GRU"]
)
def test_a_file_written_for_one_batch_size_is_for_any(name: str, written_for: int) -> None:
    torch.manual_seed(0)
    make, values = MOVED[name]
    network, batch, buffer = Tail(make(), values).eval(), images(5), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example: Any = (torch.zeros(written_for, *SHAPE),)
        torch.onnx.export(network, example, buffer, dynamo=False, opset_version=17)  # type: ignore[arg-type]
    with torch.no_grad():
        wanted = network(torch.from_numpy(normalize(batch))).numpy()
    adopted, _ = adopt(buffer.getvalue(), SHAPE, wanted.shape[1], KNOWN["symmetric"])
    made = deploy_traced(adopted, SHAPE, precision="float32", calibration=batch)
    np.testing.assert_allclose(made.run(batch), wanted, rtol=1e-4, atol=1e-4)


def test_a_network_with_its_images_in_front_keeps_its_operators() -> None:
    network = Tail(lambda x: F.max_pool2d(x.relu(), 2), 32).eval()
    made = onnx.load_from_string(deploy(network, SHAPE, precision="float32", calibration=images(1)).onnx)
    assert [node.op_type for node in made.graph.node] == ["Conv", "Relu", "MaxPool", "Flatten", "Gemm"]


@pytest.mark.parametrize(
    ("mix", "why"),
    [
        (lambda x: x - x.mean(0), "ReduceMean .*works along the images"),
        (lambda x: torch.cat([x[:1], x[1:]]), "Slice .*works along the images"),
        (lambda x: x + x.flip(0), "Slice .*works along the images"),
        (lambda x: x.softmax(0), "Softmax .*works along the images"),
        (lambda x: x + x.permute(1, 0, 2, 3).reshape(x.shape), "Add .*mixes the images"),
        (lambda x: x.flatten(1) @ x.flatten(1).T @ x.flatten(1), "MatMul .* images of a batch with each other"),
        (lambda x: x + torch.rand_like(x), "RandomUniformLike .*draws random numbers"),
        (lambda x: x * torch.arange(2.0).view(2, 1, 1, 1), "Mul .* other values for each image"),
        (lambda x: x.reshape(-1, 1, 8, 4, 4).transpose(0, 1).expand(2, -1, -1, -1, -1).sum((0, 1))[None], "ReduceSum"),
    ],
)
def test_where_images_are_mixed_it_is_said(mix: Forward, why: str) -> None:
    with pytest.raises(ToolchainError, match=f"one image at a time; {why}"):
        deploy(Tail(mix, 128).eval(), SHAPE, precision="float32", calibration=images(1))
