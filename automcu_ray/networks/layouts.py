"""Families of networks for images as data: a stem, stages that halve the resolution, blocks of one kind, a head."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from automcu_ray.core.models import FrozenModel
from automcu_ray.networks.search_space import Space, without_derived
from automcu_ray.networks.spec import ArchitectureSpec, Conv

GROWTHS = (2.0, 1.5, 1.0)  # of the width from one stage to the next: usual, and two that spend more on early stages
MAX_BLOCKS = 20
_MAX_CHANNELS = 1024
_KEPT = 4  # positions a side, of an autoencoder
_LEAST_SIDE = 2  # of the last stage's images
_USUAL_BLOCKS = (1, 2, 3)  # in a stage
_POOL = {"type": "max_pool", "kernel_size": 2}
_WIDE = {"kernel_size": 5}


class Family(FrozenModel):
    """A kind of block with its fields; `residual` where identities lead around it."""

    name: str
    block: dict[str, Any]
    residual: bool


FAMILIES = {
    family.name: family
    for family in (
        Family(name="residual", block={"type": "residual", "kernel_size": 3}, residual=True),
        Family(name="mbconv", block={"type": "mbconv", "expansion": 4.0, "kernel_size": 3}, residual=True),
        Family(name="bottleneck", block={"type": "bottleneck", "expansion": 0.5}, residual=True),
        Family(name="conv", block={"type": "conv", "kernel_size": 3}, residual=False),
        Family(name="ghost", block={"type": "ghost", "kernel_size": 3}, residual=False),
    )
}


class Layout(FrozenModel):
    """A network but for its width.

    Attributes:
        family: the kind of its blocks.
        blocks: how many each stage has; every stage but the first begins by halving the resolution.
        early: whether the stem halves the resolution already.
        growth: how much wider each stage is than the one before.
    """

    family: str
    blocks: tuple[int, ...]
    early: bool = False
    growth: float = GROWTHS[0]

    def spec(self, width: int, space: Space) -> ArchitectureSpec | None:
        """Return the network whose first stage has `width` channels, all widths even; None where it cannot be built.

        Where an accelerator's convolutions have no stride, pools halve the resolution.
        """
        stem: dict[str, Any] = {"type": "conv", "out_channels": width, "kernel_size": 3}
        block = FAMILIES[self.family].block
        if space.is_signal:  # along time alone a window of three sees little
            stem, block = stem | _WIDE, block | (_WIDE if "kernel_size" in block else {})
        layers = _halving(stem, self.early, space)
        for stage, count in enumerate(self.blocks):
            channels = 2 * round(width * self.growth**stage / 2)
            for at in range(count):
                layers += _halving({**block, "out_channels": channels}, stage > 0 and at == 0, space)
        try:
            return ArchitectureSpec.model_validate({"backbone": layers, **self._head(space)})
        except ValidationError:
            return None  # wider or deeper than specs can be

    def _head(self, space: Space) -> dict[str, Any]:
        """Return the head where it is no usual one: what reconstructs its input has to know where things were."""
        if not space.reconstructs or space.operators:
            return {}
        return {"head": {"positions": max(1, min(_KEPT, self.last_side(space)))}}

    def last_side(self, space: Space) -> int:
        """Return the side of the last stage's images, in pixels."""
        return 2 * space.side >> (len(self.blocks) + self.early)

    def widest(self) -> int:
        """Return the largest even width of the first stage that a spec can hold."""
        return 2 * int(_MAX_CHANNELS / self.growth ** (len(self.blocks) - 1) / 2)

    @property
    def residual(self) -> bool:
        """Whether identities lead around its blocks."""
        return FAMILIES[self.family].residual

    def allowed(self, space: Space) -> bool:
        """Return whether the target runs such blocks, their number is moderate, and the last stage sees an image."""
        if FAMILIES[self.family].block["type"] not in space.types:
            return False
        return self.last_side(space) >= _LEAST_SIDE and all(self.blocks) and 1 <= sum(self.blocks) <= MAX_BLOCKS

    def neighbours(self) -> Iterator["Layout"]:
        """Yield what differs in one respect: depth, where the resolution falls, growth, or the kind of block."""
        blocks = self.blocks
        for at, count in enumerate(blocks):
            yield self.replace(blocks=(*blocks[:at], count + 1, *blocks[at + 1 :]))
            yield self.replace(blocks=(*blocks[:at], count - 1, *blocks[at + 1 :]))
        for at in range(len(blocks) - 1):
            first, second = blocks[at : at + 2]
            yield self.replace(blocks=(*blocks[:at], first + 1, second - 1, *blocks[at + 2 :]))
            yield self.replace(blocks=(*blocks[:at], first - 1, second + 1, *blocks[at + 2 :]))
        yield self.replace(blocks=(*blocks, 1))
        yield self.replace(blocks=blocks[:-1])
        yield self.replace(early=not self.early)
        yield from (self.replace(growth=growth) for growth in GROWTHS if growth != self.growth)
        yield from (self.replace(family=name) for name in FAMILIES if name != self.family)


def usual(space: Space, *, residual: bool) -> list[Layout]:
    """Return the layouts with equally many blocks in each stage and doubling widths, of families of one sort."""
    stages = range(1, space.side.bit_length())
    found = (
        Layout(family=name, blocks=(count,) * number, early=early)
        for name, family in FAMILIES.items()
        if family.residual == residual
        for number in stages
        for count in _USUAL_BLOCKS
        for early in (False, True)
    )
    return [layout for layout in found if layout.allowed(space)]


def read(spec: ArchitectureSpec, space: Space) -> tuple[Layout, int] | None:
    """Return the layout and the width of the first stage that give a spec; None where no layout does."""
    layers = [layer for layer in spec.backbone if layer.type != "max_pool"]
    pooled = [before.type == "max_pool" for before in spec.backbone[:-1]]
    halved = [
        getattr(layer, "stride", 1) == 2 or before
        for layer, before in zip(spec.backbone, [False, *pooled], strict=True)
        if layer.type != "max_pool"
    ]
    family = next((name for name, one in FAMILIES.items() if layers and one.block["type"] == layers[-1].type), None)
    if family is None or len(layers) < 2 or not isinstance(layers[0], Conv):
        return None
    starts = [1, *(at for at in range(2, len(layers)) if halved[at]), len(layers)]
    blocks = tuple(after - at for at, after in pairwise(starts))
    width = layers[0].out_channels
    layouts = (Layout(family=family, blocks=blocks, early=halved[0], growth=growth) for growth in GROWTHS)
    return next(((one, width) for one in layouts if one.spec(width, space) == without_derived(spec)), None)


def _halving(layer: dict[str, Any], halves: bool, space: Space) -> list[dict[str, Any]]:
    """Return a layer, or what does its work on half the resolution."""
    if not halves:
        return [layer]
    strided = {**layer, "stride": 2}
    limited = [operator for operator in space.operators if operator.type == layer["type"]]
    return [strided] if all(operator.allows("stride", 2) for operator in limited) else [_POOL, layer]
