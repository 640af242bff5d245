"""Each morphism by an example; what is random about it is drawn until the change shows."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from automcu_ray.networks import morphisms
from automcu_ray.networks.morphisms import MORPHISMS, Layers, Morphism
from automcu_ray.networks.search_space import Space

SPACE = Space(input_shape=(3, 32, 32), num_classes=10)
CONV = {"type": "conv", "out_channels": 20, "kernel_size": 3, "stride": 1, "use_bn": True, "activation": "relu"}
POOL = {"type": "max_pool", "kernel_size": 2}
GHOST = {"type": "ghost", "out_channels": 20, "ratio": 4, "kernel_size": 1, "dw_size": 3, "stride": 1}
MBCONV = {"type": "mbconv", "out_channels": 20, "expansion": 4.0, "kernel_size": 3, "stride": 1, "se_ratio": 0.0}


def outcomes(morphism: Morphism, layers: Layers, read: Callable[[Layers], Any], draws: int = 300) -> set[Any]:
    rng, found = Random(0), set()
    for _ in range(draws):
        changed = [dict(layer) for layer in layers]
        morphism(changed, SPACE, rng)
        found.add(read(changed))
    return found


def test_layers_come_and_go_and_the_last_one_stays() -> None:
    assert outcomes(morphisms.add, [CONV], len) == {2}
    assert outcomes(morphisms.add, [CONV] * 40, len) == {40}
    assert outcomes(morphisms.remove, [CONV, POOL], lambda layers: layers[0]["type"]) == {"conv", "max_pool"}
    assert outcomes(morphisms.remove, [CONV], len) == {1}


def test_a_convolution_branches_and_a_block_of_several_paths_becomes_a_plain_one() -> None:
    def kind(layers: Layers) -> tuple[Any, ...]:
        return layers[0]["type"], layers[0]["stride"] if "stride" in layers[0] else None

    branched = {(name, 2) for name in morphisms.BRANCHED}
    assert outcomes(morphisms.branch, [{**CONV, "stride": 2}], kind) == branched
    plain = {("conv", 1), ("depthwise", 1), ("pointwise", None), ("downsample", None)}
    assert outcomes(morphisms.branch, [MBCONV], kind) == plain
    assert outcomes(morphisms.branch, [POOL], lambda layers: layers[0] == POOL) == {True}


def test_another_type_of_the_group_keeps_the_width_and_halving() -> None:
    half = {"type": "downsample", "out_channels": 20, "kernel_size": 5}
    found = outcomes(morphisms.retype, [half], lambda layers: tuple(layers[0].get(n) for n in ("type", "stride")))
    assert found == {("conv", 2), ("depthwise", 2), ("pointwise", None)}
    assert outcomes(morphisms.retype, [half], lambda layers: layers[0].get("out_channels")) <= {20, None}
    assert outcomes(morphisms.retype, [POOL], lambda layers: tuple(layers[0].values())) == {("avg_pool", 2)}


def test_batch_norm_activation_and_squeeze_excite_are_toggled() -> None:
    def fields(layers: Layers) -> tuple[Any, ...]:
        return tuple(layers[0].get(name) for name in ("use_bn", "activation", "se_ratio"))

    assert outcomes(morphisms.toggle, [CONV], fields) == {(False, "relu", None), (True, "none", None)}
    bounded = {**CONV, "activation": "relu6", "use_bn": False}
    assert outcomes(morphisms.toggle, [bounded], fields) == {(False, "none", None), (True, "relu6", None)}
    assert outcomes(morphisms.toggle, [MBCONV], fields) == {(None, None, 0.25)}


def test_widths_go_by_a_few_channels_or_by_a_factor_and_can_be_split() -> None:
    def width(layers: Layers) -> int:
        return int(layers[0]["out_channels"])

    assert outcomes(morphisms.step_width, [CONV], width) == {15, 17, 19, 21, 23, 25}
    assert outcomes(morphisms.scale_width, [CONV], width) == {10, 13, 16, 25, 30, 40}
    assert {found % 4 for found in outcomes(morphisms.step_width, [GHOST], width)} == {0}
    assert outcomes(morphisms.step_width, [{**CONV, "out_channels": 2}], width) == {1, 3, 5, 7}
    assert outcomes(morphisms.step_width, [POOL], lambda layers: layers[0] == POOL) == {True}


def test_inner_widths_kernels_and_strides_go_by_one_step() -> None:
    assert outcomes(morphisms.scale_hidden, [MBCONV], lambda layers: layers[0]["expansion"]) == {3, 3.5, 4.5, 5}
    assert outcomes(morphisms.change_kernel, [CONV], lambda layers: layers[0]["kernel_size"]) == {1, 5}
    assert outcomes(morphisms.change_kernel, [POOL], lambda layers: layers[0]["kernel_size"]) == {1, 3}
    windows = outcomes(morphisms.change_kernel, [GHOST], lambda ls: (ls[0]["kernel_size"], ls[0]["dw_size"]))
    assert windows == {(-1, 3), (3, 3), (1, 1), (1, 5)}
    assert outcomes(morphisms.change_stride, [CONV, POOL], lambda layers: layers[0]["stride"]) == {2}


@pytest.mark.parametrize("morphism", MORPHISMS, ids=lambda morphism: morphism.__name__)
def test_most_of_what_a_morphism_makes_can_be_built_and_is_another_network(morphism: Morphism) -> None:
    """What cannot be built is drawn again; a morphism that seldom succeeds would hardly ever take part."""
    skip = {"type": "skip", "back": 3, "activation": "relu"}
    parent = [CONV, {**CONV, "groups": 2}, MBCONV, {**GHOST, "ratio": 2}, skip, POOL, {**CONV, "stride": 2}]
    known = SPACE.candidate_or_none({"backbone": parent})
    assert known is not None
    rng, built = Random(0), 0
    for _ in range(60):
        changed = [dict(layer) for layer in parent]
        morphism(changed, SPACE, rng)
        found = SPACE.candidate_or_none({"backbone": changed})
        built += found is not None and found.hash != known.hash
    assert built >= 40  # an odd width cannot be split into the groups behind it
