"""The layers of the specification on signals, (channels, 1, time): windows of one row, which may be dilated."""

from random import Random

import pytest
import torch

from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.graph import ConstructibilityError
from automcu_ray.networks.layouts import Layout, read, usual
from automcu_ray.networks.search_space import Space
from automcu_ray.networks.spec import ArchitectureSpec

SIGNALS = Space(input_shape=(6, 1, 100), num_classes=5)
PICTURES = Space(input_shape=(1, 28, 28), num_classes=5)


def spec(*layers: dict[str, object]) -> ArchitectureSpec:
    return ArchitectureSpec.model_validate({"backbone": layers})


def test_windows_move_along_time_alone() -> None:
    conv = {"type": "conv", "out_channels": 8, "kernel_size": 5, "stride": 2, "dilation": 4}
    graph = SIGNALS.graph(spec(conv, {"type": "max_pool", "kernel_size": 4}, {"type": "residual", "out_channels": 8}))
    first, pool = graph.ops[:2]
    assert (first.shape, first.weights, first.padding) == ((8, 1, 50), 8 * 6 * 5, 8)  # reach 17, half of it
    assert pool.shape == (8, 1, 12)
    assert Network(graph)(torch.zeros(2, 6, 1, 100)).shape == (2, 5)


def test_dilated_networks_are_other_networks_and_pictures_have_none() -> None:
    hashes = {
        SIGNALS.candidate(spec({"type": "conv", "out_channels": 8, "dilation": gap, "padding": 1})).hash
        for gap in (1, 2)
    }
    assert len(hashes) == 2
    with pytest.raises(ConstructibilityError, match=r"layer_1\.dilation: must be 1: only signals.*found 2"):
        PICTURES.graph(spec({"type": "conv", "out_channels": 8, "dilation": 2}))
    with pytest.raises(ConstructibilityError, match=r"layer_2\.kernel_size: must not exceed its padded input of 1x12"):
        SIGNALS.graph(
            spec(
                {"type": "max_pool", "kernel_size": 8},
                {"type": "conv", "out_channels": 4, "kernel_size": 7, "padding": 0, "dilation": 4},
            )
        )


def test_usual_layouts_are_wide_along_time_and_read_back() -> None:
    layouts = usual(SIGNALS, residual=True)
    assert {len(layout.blocks) for layout in layouts} == {1, 2, 3, 4, 5, 6}  # of 100 samples, 3 are left
    layout = Layout(family="residual", blocks=(1, 2, 1), early=True)
    made = layout.spec(8, SIGNALS)
    assert made is not None and {layer.kernel_size for layer in made.backbone} == {5}  # type: ignore[union-attr]
    assert read(made, SIGNALS) == (layout, 8)


def test_mutation_reaches_dilations_and_stays_constructible() -> None:
    rng, at = Random(0), SIGNALS.sample(Random(1))
    gaps = set()
    for _ in range(150):
        at = SIGNALS.mutate(at, rng)
        assert at.spec is not None
        gaps |= {getattr(layer, "dilation", 1) for layer in at.spec.backbone}
    assert gaps >= {1, 2, 4}
