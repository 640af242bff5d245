"""What a chain of blocks cannot say: skips and concatenations over layers, groups, heads that keep positions."""

from random import Random
from typing import Any

import pytest
import torch

from automcu_ray.core.feasibility import Change
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks import morphisms
from automcu_ray.networks.graph import ConstructibilityError, Graph
from automcu_ray.networks.lowering import lower
from automcu_ray.networks.morphisms import Layers
from automcu_ray.networks.search_space import OutsideSpaceError, Space
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.target import McuTarget
from automcu_ray.runtime.config_files import CONFIGS, read_yaml
from automcu_ray.sizing.repair import smallest_change

CIFAR = (3, 32, 32)
SPACE = Space(input_shape=CIFAR, num_classes=10)
CONV: dict[str, Any] = {"type": "conv", "out_channels": 8}
HALF: dict[str, Any] = {"type": "downsample", "out_channels": 16}
SKIP: dict[str, Any] = {"type": "skip"}
CONCAT: dict[str, Any] = {"type": "concat"}


def spec(*layers: dict[str, Any], **head: Any) -> ArchitectureSpec:
    return ArchitectureSpec.model_validate({"backbone": layers, "head": head})


def graph(*layers: dict[str, Any], shape: tuple[int, int, int] = CIFAR, **head: Any) -> Graph:
    return lower(spec(*layers, **head), shape, 10)


def refusal(*layers: dict[str, Any], **head: Any) -> str:
    with pytest.raises(ConstructibilityError) as caught:
        graph(*layers, **head)
    return str(caught.value)


def test_a_skip_within_a_stage_is_a_sum_and_across_stages_a_projection_of_the_stride() -> None:
    near = graph(CONV, CONV, SKIP).ops
    assert [(op.kind, op.inputs) for op in near[:3]] == [("conv", (-1,)), ("conv", (0,)), ("add", (0, 1))]
    far = graph(CONV, HALF, HALF, {**SKIP, "back": 3}).ops
    project, join = far[3:5]
    assert (project.kind, project.inputs, project.kernel, project.stride) == ("conv", (0,), 1, 4)
    assert (project.weights, project.shape, join.inputs, join.shape) == (8 * 16, (16, 8, 8), (3, 2), (16, 8, 8))
    odd = graph({**CONV, "padding": 0}, HALF, {**SKIP, "back": 2}, shape=(3, 9, 12)).ops  # 7x10, 4x5
    assert odd[2].stride == 2 and odd[3].shape == (16, 4, 5)


def test_a_concatenation_has_the_channels_of_both() -> None:
    joined = graph(CONV, {**CONV, "out_channels": 12}, CONCAT, {"type": "pointwise", "out_channels": 4}).ops
    assert (joined[2].kind, joined[2].inputs, joined[2].shape) == ("concat", (0, 1), (20, 32, 32))
    assert joined[3].weights == 20 * 4


def test_groups_divide_the_weights() -> None:
    assert graph(CONV, {**CONV, "groups": 4}).ops[1].weights == 8 * 2 * 9
    assert SPACE.candidate(spec(CONV, CONV)).hash == SPACE.candidate(spec(CONV, {**CONV, "groups": 1})).hash
    depthwise = SPACE.candidate(spec(CONV, {"type": "depthwise"}))
    assert depthwise.hash == SPACE.candidate(spec(CONV, {**CONV, "groups": 8})).hash  # one network, written twice


@pytest.mark.parametrize(
    ("side", "positions", "window", "stride"), [(8, 2, 4, 4), (7, 2, 4, 3), (7, 3, 3, 2), (8, 5, 4, 1), (32, 8, 4, 4)]
)
def test_a_head_keeps_so_many_positions_a_side_and_leaves_no_row_out(
    side: int, positions: int, window: int, stride: int
) -> None:
    pool, linear = graph(CONV, shape=(3, side, side), positions=positions).ops[1:]
    assert (pool.kind, pool.kernel, pool.stride, pool.padding) == ("avg_pool", window, stride, 0)
    assert (positions - 1) * stride + window == side
    assert (pool.shape, linear.weights) == ((8, positions, positions), 10 * 8 * positions**2)


def test_a_head_that_keeps_all_positions_has_no_pool_and_a_signal_has_one_row_of_them() -> None:
    assert [op.kind for op in graph(CONV, shape=(3, 4, 4), positions=4).ops] == ["conv", "linear"]
    assert graph(CONV, shape=(3, 1, 20), positions=4).ops[1].shape == (8, 1, 4)
    assert graph(CONV, shape=(3, 4, 9), positions=2).ops[1].shape == (8, 2, 4)  # as many on the longer side as fit


@pytest.mark.parametrize(
    ("layers", "head", "message"),
    [
        ([CONV, SKIP], {}, "layer_2.back: must name one of the 1 layers before this one, and not the one right before"),
        ([CONV, HALF, CONCAT], {}, "layer_3.back: must lead to a map of 16x16 as here, found 32x32"),
        (
            [CONV, {"type": "max_pool", "kernel_size": 3}, SKIP],
            {},
            "layer_3.back: must lead to a map 1, 2, 4 or 8 times as large as the 10x10 here, found 32x32",
        ),
        ([{**CONV, "out_channels": 600}] * 2 + [CONCAT], {}, "must lead to 424 channels at most, with the 600 here"),
        ([{**CONV, "groups": 2}], {}, "layer_1.groups: must divide its 3 channels, found 2"),
        ([CONV, {**CONV, "out_channels": 6, "groups": 4}], {}, "layer_2.groups: must divide its 6 channels, found 4"),
        (
            [{"type": "max_pool", "kernel_size": 8}],
            {"positions": 5},
            "head.positions: must not exceed the 4 of the last",
        ),
    ],
)
def test_what_does_not_fit_together_names_layer_field_rule_and_value(
    layers: Layers, head: dict[str, Any], message: str
) -> None:
    assert message in refusal(*layers, **head)


def test_shapes_are_torchs() -> None:
    layers = [CONV, {**CONV, "groups": 2}, CONCAT, HALF, {**SKIP, "back": 3}]
    made = graph(*layers, positions=3)
    network = Network(made).eval()
    images = torch.randn(2, *CIFAR)
    values: list[torch.Tensor] = []
    for op, layer in zip(made.ops, network.layers.values(), strict=True):
        values.append(layer(*(images if index < 0 else values[index] for index in op.inputs)))
        assert tuple(values[-1].shape) == ((2, *op.shape) if op.kind != "linear" else (2, 10))
    assert torch.equal(values[-1], network(images))
    weights = sum(values.numel() for values in network.parameters() if values.ndim > 1)
    assert sum(op.weights for op in made.ops) == weights


def test_a_layer_that_comes_or_goes_leaves_joins_what_they_read() -> None:
    first, last = {**CONV, "out_channels": 5}, {**SKIP, "back": 3}
    layers = [first, CONV, CONV, last]

    def read(changed: Layers) -> Any:
        at = next(
            place for place, layer in enumerate(changed) if layer is not last and layer.get("activation") == "last"
        )
        return changed[at - changed[at]["back"]]["out_channels"]

    rng = Random(0)
    for _ in range(200):
        grown, shrunk = ([dict(layer) for layer in layers] for _ in range(2))
        grown[-1]["activation"] = shrunk[-1]["activation"] = "last"
        morphisms.add(grown, SPACE, rng)
        assert read(grown) == 5
        morphisms.remove(shrunk, SPACE, rng)
        if [layer["out_channels"] for layer in shrunk[:-1]] == [5, 8] and shrunk[-1].get("activation") == "last":
            assert read(shrunk) == 5


def test_groups_sources_and_positions_go_by_one_step() -> None:
    rng = Random(0)

    def after(step: Any, thing: Any, read: Any) -> set[Any]:
        found = set()
        for _ in range(60):
            changed = [dict(layer) for layer in thing] if isinstance(thing, list) else dict(thing)
            step(changed, *([SPACE] if isinstance(thing, list) else []), rng)
            found.add(read(changed))
        return found

    assert after(morphisms.change_groups, [{**CONV, "groups": 2}], lambda ls: ls[0]["groups"]) == {1, 4}
    assert after(morphisms.change_source, [{**SKIP, "back": 3}], lambda ls: ls[0]["back"]) == {2, 4}
    assert after(morphisms.retype, [{**SKIP, "back": 3}], lambda ls: (ls[0]["type"], ls[0]["back"])) == {("concat", 3)}
    assert after(morphisms.change_positions, {"positions": 4}, lambda head: head["positions"]) == {2, 3, 5, 8}
    assert after(morphisms.change_positions, {"positions": 1}, lambda head: head["positions"]) == {2}


def test_chance_and_mutation_use_all_of_it() -> None:
    rng, seen = Random(0), set[str]()
    for _ in range(150):
        parent = SPACE.sample(rng)
        for found in (parent, SPACE.mutate(parent, rng)):
            assert found.spec is not None
            seen |= {layer.type for layer in found.spec.backbone}
            seen |= {"groups" for layer in found.spec.backbone if getattr(layer, "groups", 1) > 1}
            seen |= {f"positions {found.spec.head.positions}"}
    assert {"skip", "concat", "groups", "positions 1", "positions 2", "positions 4"} <= seen


def test_a_change_of_groups_or_positions_can_be_what_makes_it_fit() -> None:
    large = spec(CONV, {**CONV, "out_channels": 64}, positions=8)
    weights = 3 * 72 + 8 * 64 * 9 + 10 * 64 * 64

    def fits(made: Graph) -> bool:
        return sum(op.weights for op in made.ops) <= weights - 10 * 64 * (64 - 49)

    assert smallest_change(large, SPACE, fits) == Change(where="head.positions", before=8, after=7)
    parent = SPACE.candidate(large)
    changed = SPACE.changed(parent, [Change(where="head.positions", before=8, after=7)])
    assert changed is not None and changed.spec is not None and changed.spec.head.positions == 7
    wide = {**CONV, "out_channels": 16, "kernel_size": 7}
    half = sum(op.weights for op in graph(CONV, {**wide, "groups": 2}).ops)

    def fits_as_wide(made: Graph) -> bool:
        kept = (made.ops[0].shape, made.ops[1].shape, made.ops[1].kernel) == ((8, 32, 32), (16, 32, 32), 7)
        return kept and sum(op.weights for op in made.ops) <= half

    change = smallest_change(spec(CONV, wide), SPACE, fits_as_wide)
    assert change == Change(where="layer_2.groups", before=1, after=2)


def test_an_accelerator_gets_none_of_it_by_chance_and_groups_not_at_all() -> None:
    target = McuTarget.model_validate(read_yaml(CONFIGS / "target" / "max78000.yaml"))
    assert target.accelerator is not None
    space, rng = Space(input_shape=CIFAR, num_classes=10, operators=target.accelerator.operators), Random(0)
    for _ in range(50):
        found = space.mutate(space.sample(rng), rng)
        assert found.spec is not None and found.spec.head.positions == 1
        assert not {layer.type for layer in found.spec.backbone} & {"skip", "concat"}
    with pytest.raises(OutsideSpaceError, match=r"layer_2\.groups: must be one of 1, .* found 2"):
        space.candidate(spec(CONV, {**CONV, "groups": 2}))
