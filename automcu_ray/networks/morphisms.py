"""Small steps from one network to another: the morphisms of uNAS, on the layers of a specification.

Source: Liberis, Dudziak, Lane 2020, arXiv:2010.14246, section 4.2 and the authors' code. There, convolutions lie in
blocks that stand in series or in parallel. Here a backbone is one series, and what branches is a layer type; so to
branch is to change between a plain convolution and a block with several paths. As there, no weights are taken over.
Ours are the steps of groups, joins, the head and dilation. A layer that comes or goes leaves joins what they read.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from automcu_ray.networks.lowering import CODE, DECODER
from automcu_ray.networks.spec import LAYERS, MAX_LAYERS, MAX_POSITIONS

Layers = list[dict[str, Any]]  # a backbone as JSON, without derived fields
Kinds = tuple[str, ...]

PLAIN = ("conv", "depthwise", "pointwise", "downsample")
BRANCHED = ("ghost", "bottleneck", "mbconv", "residual")
POOLS = ("max_pool", "avg_pool")
JOINS = ("skip", "concat")
_CHANNELS = (-5, -3, -1, 1, 3, 5)  # as published
_FACTORS = (0.5, 0.67, 0.8, 1.25, 1.5, 2)
_EXPANSIONS = (-1, -0.5, 0.5, 1)
_STATES: dict[str, tuple[Any, Any]] = {"use_bn": (True, False), "activation": ("relu", "none"), "se_ratio": (0.25, 0)}


class Choices(Protocol):
    """What a morphism asks of a space: the layer types that may be used, and random layers of them."""

    @property
    def types(self) -> tuple[str, ...]: ...

    def random_layer(self, rng: Random, kind: str = "") -> dict[str, Any]: ...


Morphism = Callable[[Layers, Choices, Random], None]  # changes the layers in place; no change where it does not apply


def add(layers: Layers, space: Choices, rng: Random) -> None:
    """Insert a random layer anywhere."""
    if len(layers) < MAX_LAYERS:
        at = rng.randint(0, len(layers))
        for join in _over(layers, at):
            join["back"] += 1
        layers.insert(at, space.random_layer(rng))


def remove(layers: Layers, space: Choices, rng: Random) -> None:
    """Take a layer out."""
    if len(layers) > 1:
        at = rng.randrange(len(layers))
        for join in _over(layers, at):
            join["back"] -= 1
        layers.pop(at)


def branch(layers: Layers, space: Choices, rng: Random) -> None:
    """Let a plain convolution become a block with several paths, or such a block a plain one; its width stays."""
    _become(layers, space, rng, ((PLAIN, BRANCHED), (BRANCHED, PLAIN)))


def retype(layers: Layers, space: Choices, rng: Random) -> None:
    """Let a layer become another one of its group: plain, with several paths, pooling, or a join; its width stays."""
    _become(layers, space, rng, ((PLAIN, PLAIN), (BRANCHED, BRANCHED), (POOLS, POOLS), (JOINS, JOINS)))


def toggle(layers: Layers, space: Choices, rng: Random) -> None:
    """Take a layer's batch norm, activation or squeeze-excite away, or give it one."""
    for layer, name in _pick(layers, rng, tuple(_STATES)):
        given, taken = _STATES[name]
        layer[name] = given if layer[name] == taken else taken


def step_width(layers: Layers, space: Choices, rng: Random) -> None:
    """Make a layer a few channels wider or narrower."""
    for layer, name in _pick(layers, rng, ("out_channels",)):
        layer[name] = _divisible(layer[name] + rng.choice(_CHANNELS), layer)


def scale_width(layers: Layers, space: Choices, rng: Random) -> None:
    """Make a layer wider or narrower by a factor: a few channels are little for a wide one."""
    for layer, name in _pick(layers, rng, ("out_channels",)):
        layer[name] = _divisible(round(layer[name] * rng.choice(_FACTORS)), layer)


def scale_hidden(layers: Layers, space: Choices, rng: Random) -> None:
    """Expand the input of a bottleneck or mbconv more, or less."""
    for layer, name in _pick(layers, rng, ("expansion",)):
        layer[name] += rng.choice(_EXPANSIONS)


def change_kernel(layers: Layers, space: Choices, rng: Random) -> None:
    """Give a window the next smaller or larger size: by 2 in convolutions, by 1 in pooling layers."""
    for layer, name in _pick(layers, rng, ("kernel_size", "dw_size")):
        layer[name] += rng.choice((-1, 1)) * (1 if layer["type"] in POOLS else 2)


def change_stride(layers: Layers, space: Choices, rng: Random) -> None:
    """Let a convolution halve height and width, or stop doing so."""
    for layer, name in _pick([layer for layer in layers if layer["type"] not in POOLS], rng, ("stride",)):
        layer[name] = 3 - layer[name]


def change_dilation(layers: Layers, space: Choices, rng: Random) -> None:
    """Spread a signal's window over twice or half the time."""
    for layer, name in _pick(layers, rng, ("dilation",)):
        layer[name] = rng.choice((layer[name] * 2, max(1, layer[name] // 2)))


def change_groups(layers: Layers, space: Choices, rng: Random) -> None:
    """Split a convolution into twice or half as many groups."""
    for layer, name in _pick(layers, rng, ("groups",)):
        layer[name] = rng.choice((layer[name] * 2, max(1, layer[name] // 2)))


def change_source(layers: Layers, space: Choices, rng: Random) -> None:
    """Let a join read one layer earlier or later."""
    for layer, name in _pick(layers, rng, ("back",)):
        layer[name] += rng.choice((-1, 1))


def change_positions(head: dict[str, Any], rng: Random) -> None:
    """Let a head keep one position a side more or less, or twice or half as many."""
    known: int = head["positions"]
    near = (known - 1, known // 2, known + 1, known * 2)
    head["positions"] = rng.choice([positions for positions in near if 1 <= positions <= MAX_POSITIONS])


def change_bottleneck(head: dict[str, Any], rng: Random) -> None:
    """Let an autoencoder's code, or what is decoded from it, have half or twice as many values."""
    name, usual = rng.choice((("code", CODE), ("decoder", DECODER)))
    known: int = head.get(name, usual)
    head[name] = max(1, rng.choice((known // 2, known * 2)))


MORPHISMS: tuple[Morphism, ...] = (
    add,
    remove,
    branch,
    retype,
    toggle,
    step_width,
    scale_width,
    scale_hidden,
    change_kernel,
    change_stride,
    change_groups,
    change_source,
)
SIGNAL_MORPHISMS = (*MORPHISMS, change_dilation)


def _over(layers: Layers, at: int) -> list[dict[str, Any]]:
    """Return the joins from place `at` on that read a layer before it."""
    joins = [(place, layer) for place, layer in enumerate(layers) if "back" in layer]
    return [layer for place, layer in joins if place - layer["back"] < at <= place]


def _pick(layers: Layers, rng: Random, names: tuple[str, ...]) -> list[tuple[dict[str, Any], str]]:
    """Return one layer that has one of these fields, with the field's name, at random; () where none has any."""
    found = [(layer, name) for layer in layers for name in names if name in layer]
    return [rng.choice(found)] if found else []


def _become(layers: Layers, space: Choices, rng: Random, groups: tuple[tuple[Kinds, Kinds], ...]) -> None:
    """Change the type of a layer of one group to one of the group beside it; the fields that both have stay."""
    ways = [
        (at, kind)
        for at, layer in enumerate(layers)
        for before, after in groups
        for kind in after
        if layer["type"] in before and kind in space.types and kind != layer["type"]
    ]
    if not ways:
        return
    at, kind = rng.choice(ways)
    old, new = layers[at], space.random_layer(rng, kind)
    kept = {"stride": 2} if old["type"] == "downsample" else {}
    kept |= {name: value for name, value in old.items() if name not in ("type", "expansion")}
    new |= {name: value for name, value in kept.items() if name in LAYERS[kind].model_fields}
    if "out_channels" in new:
        new["out_channels"] = _divisible(new["out_channels"], new)
    layers[at] = new


def _divisible(width: int, layer: dict[str, Any]) -> int:
    """Return a width rounded to what the layer can be split into."""
    parts: int = layer.get("ratio") or layer.get("groups", 1)
    return max(1, round(width / parts)) * parts
