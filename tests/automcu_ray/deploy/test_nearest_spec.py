"""A network of a user's, read as the nearest spec: what has a counterpart is that, the rest is named."""

import io
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.nearest_spec import read_spec
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.search_space import Space
from automcu_ray.networks.spec import ArchitectureSpec

SHAPE = (3, 16, 16)
SPACE = Space(input_shape=SHAPE, num_classes=10)


def file_of(network: nn.Module, shape: tuple[int, ...] = SHAPE) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network.eval(), (torch.zeros(1, *shape),), buffer, dynamo=False, opset_version=17)  # type: ignore[arg-type]
    return buffer.getvalue()


def layer(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


@pytest.mark.parametrize(
    "layers",
    [
        [
            layer("conv", out_channels=8, activation="relu6"),
            layer("residual", out_channels=8),
            layer("residual", out_channels=16, stride=2),
            layer("bottleneck", out_channels=16, expansion=0.5),
        ],
        [
            layer("conv", out_channels=8, stride=2, kernel_size=5),
            layer("mbconv", out_channels=8, expansion=4),
            layer("mbconv", out_channels=12, expansion=3, stride=2, se_ratio=0.25),
            layer("max_pool"),
        ],
        [
            layer("conv", out_channels=8, padding=0),
            layer("depthwise", stride=2),
            layer("pointwise", out_channels=16),
            layer("concat", back=2),
            layer("conv", out_channels=16, groups=4, activation="none"),
            layer("skip", back=2),
        ],
    ],
    ids=["residual", "mbconv", "joins"],
)
def test_what_is_a_spec_is_read_as_that_spec(layers: list[dict[str, Any]]) -> None:
    graph = SPACE.graph(ArchitectureSpec.model_validate({"backbone": layers}))
    found = read_spec(file_of(Network(graph)), SHAPE)
    again = SPACE.graph(ArchitectureSpec.model_validate({"backbone": found.layers}))
    assert again.canonical_hash() == graph.canonical_hash()
    assert not found.lost and found.macs == sum(op.macs for op in graph.ops)


class Odd(nn.Module):
    """What a spec has no word for, between what it has."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.left, self.right = nn.Conv2d(3, 8, 11, 4, 5), nn.Conv2d(8, 4, 1), nn.Conv2d(8, 6, 3, padding=1)
        self.norm, self.hidden, self.head = nn.LayerNorm([10, 4, 4]), nn.Linear(160, 24), nn.Linear(24, 7)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.stem(x))
        x = self.norm(torch.cat([self.left(x), self.right(x)], 1))
        return torch.softmax(self.head(torch.relu(self.hidden(x.flatten(1)))), 1)


def test_what_has_no_counterpart_is_named_and_the_rest_read() -> None:
    found = read_spec(file_of(Odd()), (3, 32, 32))  # its own image size and classes
    assert [one["type"] for one in found.layers] == ["conv", "conv", "avg_pool", "pointwise"]
    assert [one.get("out_channels") for one in found.layers] == [8, 10, None, 24]  # as wide as both branches
    named = " | ".join(found.lost)
    for words in (
        "Conv 11x11 (read as 7)",
        "stride 4 (read as 2)",
        "parallel branches",
        "LayerNormalization",
        "hidden",
    ):
        assert words in named
    assert found.operators > sum(found.lost.values())


def test_a_linear_layer_of_places_is_a_head_of_positions() -> None:
    found = read_spec(
        file_of(nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10))), SHAPE
    )
    assert found.positions == 4


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: b"\xff" * 20, "that onnx can read"),
        (lambda: file_of(nn.Linear(4, 2), (4,)), "an input of float images"),
        (lambda: file_of(nn.Sequential(nn.Flatten(), nn.Softmax(1))), "nothing of it has a counterpart"),
    ],
)
def test_no_network_of_images_is_refused_in_one_line(model: Any, words: str) -> None:
    with pytest.raises(ToolchainError, match=words):
        read_spec(model(), SHAPE)
