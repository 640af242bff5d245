"""A regular expression of the networks that fit an input, in the compact notation, for constrained decoders.

Shapes are followed from word to word: no stride or pool beyond the map that is reached, no join that reads another
size, no more positions than the last map has. It has no look-around and no back-reference.
"""

from collections.abc import Iterable
from functools import lru_cache

from automcu_ray.networks.morphisms import POOLS
from automcu_ray.networks.notation import HEAD, HEAD_FIELDS, KINDS
from automcu_ray.networks.search_space import Space
from automcu_ray.networks.spec import MAX_LAYERS, MAX_POSITIONS

_WIDTH = "[1-9][0-9]?[0-9]?"  # xgrammar 0.2 reads {0,2} in an optional group as if what stands before it were optional
_EVEN = "(?:[2468]|[1-9][0-9]?[02468])"
_FOURFOLD = "(?:[48]|[2468][048]|[13579][26]|[1-9](?:[02468][048]|[13579][26]))"
_MOST = 4  # layers that follow the first one on maps of one size
_PAIR = 1  # more where a convolution in groups stands behind one of them


@lru_cache
def pattern(space: Space) -> str:
    """Return the expression of a space's networks.

    It has the fields that the space asks about, but of pools the usual window, and a convolution in groups behind a
    layer whose channels can be split. What it cannot know (whether joined channels are too many, an accelerator's
    limits) is validated in any case.
    """
    first = space.side
    most = max(1, min(_MOST, MAX_LAYERS // _stages(first) - 1 - _PAIR))

    def after(size: int, crosses: bool) -> str:
        """Return what may follow the first layer on maps of one size; `crosses`: a skip may read the layer before."""
        ends = [f" {words}{after(*then)}" for then, words in _shrinks(space, size).items()]
        ends += [f" {head}"] if (head := _head(space, size)) else []
        return _keeping(space, size, most, crosses) + (f"(?:{'|'.join(ends)})?" if ends else "")

    begun = [f"{_any_of([*_keeps(space, first), *_pairs(space, first)])}{after(first, False)}"]
    begun += [f"{words}{after(then[0], False)}" for then, words in _shrinks(space, first).items()]
    return "|".join(begun)


def _keeping(space: Space, size: int, most: int, crosses: bool) -> str:
    """Return up to `most` layers that keep a map's size, one inside the other, for each knows what it may join."""
    found = ""
    for place in range(most, 0, -1):  # so many layers of this size stand before it, at least
        words = [*_keeps(space, size), *(_pairs(space, size) if place == 1 else ())]
        if "skip" in space.types:
            words += [f"sk[2-{last}]" for last in [place + crosses] if last >= 2]
        if "concat" in space.types and place >= 2:
            words.append(f"cat[2-{place}]")
        found = f"(?: {_any_of(words)}{found})?"
    return found


def _keeps(space: Space, size: int) -> list[str]:
    """Return the layers that keep a map's size."""
    words = {
        **_layers(space, size, ""),
        "pointwise": f"p{_WIDTH}",
        "ghost": f"g{_EVEN}(?:k[13])?(?:z[35])?",
    }
    return [word for kind, word in words.items() if kind in space.types]


def _pairs(space: Space, size: int) -> list[str]:
    """Return a layer with a convolution in groups behind it."""
    kinds = [kind for kind in ("conv", "residual", "pointwise") if kind in space.types]
    kernels = {kind: "" if kind == "pointwise" else _kernel(space, kind, size) for kind in kinds}
    before = _any_of(f"{KINDS[kind]}{_FOURFOLD}{kernel}" for kind, kernel in kernels.items())
    return [f"{before}{word}" for word in _grouped(space, size)]


def _grouped(space: Space, size: int) -> list[str]:
    known = "conv" in space.types and all(space.allows("conv", "groups", groups) for groups in (2, 4))
    return [f" c{_FOURFOLD}{_kernel(space, 'conv', size)}g[24]"] if known else []


def _shrinks(space: Space, size: int) -> dict[tuple[int, bool], str]:
    """Return the layers that make a map smaller, by the size that it then has, and whether a skip may cross them.

    A skip is projected by strides, which round up, where pools round down.
    """
    if size == 1:
        return {}
    _, height, width = space.input_shape
    one_size = space.is_signal or height == width  # else the longer side may be odd where the shorter one is even
    layers = _layers(space, size, "s2").items()
    strided = [word for kind, word in layers if kind in space.types and space.allows(kind, "stride", 2)]
    if "downsample" in space.types:
        strided += [f"d{_WIDTH}(?:k[35])?", *(f"d{_FOURFOLD}(?:k[35])?{word}" for word in _grouped(space, size))]
    pools = [f"{KINDS[kind]}2" for kind in POOLS if kind in space.types]
    if size % 2:
        found = {((size + 1) // 2, True): strided, (size // 2, False): pools}
    else:
        found = {(size // 2, one_size or not pools): [*strided, *pools]}
    return {then: _any_of(words) for then, words in found.items() if words}


def _layers(space: Space, size: int, stride: str) -> dict[str, str]:
    """Return the layers that have a stride, with it or without."""
    kernels = {kind: _kernel(space, kind, size) for kind in ("conv", "depthwise", "mbconv", "residual")}
    spread = "(?:l[248])?" if space.is_signal and not stride else ""
    return {
        "conv": f"c{_WIDTH}{kernels['conv']}{stride}{spread}",
        "depthwise": f"dw{_WIDTH if stride else f'(?:{_WIDTH})?'}{kernels['depthwise']}{stride}{spread}",
        "bottleneck": f"b{_WIDTH}(?:e(?:0\\.5|[1-4]))?{stride}",
        "mbconv": f"mb{_WIDTH}(?:e[1-6])?{kernels['mbconv']}{stride}(?:q0\\.25)?",
        "residual": f"r{_WIDTH}{kernels['residual']}{stride}{spread}",
    }


def _kernel(space: Space, kind: str, size: int) -> str:
    """Return a kernel's letter and its values, on a small map small ones; "" where there is but the default, 3."""
    sizes = [kernel for kernel in ((1, 3, 5, 7) if size > 2 else (1, 3)) if space.allows(kind, "kernel_size", kernel)]
    word = f"k[{''.join(map(str, sizes))}]"
    return (f"(?:{word})?" if sizes != [3] else "") if 3 in sizes else word


def _head(space: Space, size: int) -> str:
    """Return the word of a head that fits a last map; "" where it is what it is."""
    if space.operators:
        return ""
    most = min(MAX_POSITIONS, size)
    if not space.reconstructs:
        return f"{HEAD}[2-{most}]" if most > 1 else ""
    return f"{HEAD}[1-{most}]" + "".join(f"(?:{letter}{_WIDTH})?" for letter in HEAD_FIELDS.values())


def _stages(size: int) -> int:
    """Return how many sizes of maps there can be, each half as large as the one before."""
    return (size - 1).bit_length() + 1


def _any_of(words: Iterable[str]) -> str:
    return f"(?:{'|'.join(words)})"
