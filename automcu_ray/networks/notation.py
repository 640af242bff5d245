"""The compact notation of specs: `c24 r24 d32 mb64e3k5`, a word a layer, in a twentieth of the characters of JSON.

A word is a type, its output channels (of a pool: its window), and the fields that differ from their defaults, each a
letter and a value. What has no letter is written by its name, `c24[padding=0]`, so that every spec can be written.
`pattern` is a regular expression of the words that fit an input: no stride or pool beyond the map that is reached.
"""

import json
import re
from functools import lru_cache
from typing import Any

from automcu_ray.networks.search_space import Space, without_derived
from automcu_ray.networks.spec import LAYERS, MAX_LAYERS, ArchitectureSpec, Classifier

KINDS = {
    "conv": "c",
    "depthwise": "dw",
    "pointwise": "p",
    "downsample": "d",
    "ghost": "g",
    "bottleneck": "b",
    "mbconv": "mb",
    "residual": "r",
    "max_pool": "mp",
    "avg_pool": "ap",
}
FIELDS = {
    "kernel_size": "k",
    "stride": "s",
    "expansion": "e",
    "se_ratio": "q",
    "ratio": "t",
    "dw_size": "z",
    "dilation": "l",
    "use_bn": "n",
    "activation": "a",
}
_ACTIVATIONS = {"relu": "1", "relu6": "6", "none": "0"}
_TYPES = {word: kind for kind, word in KINDS.items()}
_NAMES = {letter: name for name, letter in FIELDS.items()}
_POOLS = ("max_pool", "avg_pool")
_HEAD = "head"
_MEANINGS = {
    "conv": "c convolution",
    "depthwise": "dw depthwise (and 1x1 to a new width)",
    "pointwise": "p 1x1 convolution",
    "downsample": "d convolution of stride 2",
    "ghost": "g ghost (even width)",
    "bottleneck": "b bottleneck (e hidden/input, default 1)",
    "mbconv": "mb mbconv (e expansion, default 4; q squeeze-excite)",
    "residual": "r residual",
    "max_pool": "mp max pool",
    "avg_pool": "ap average pool",
}
_MOST_WORDS = 200
_PER_STAGE = 4  # layers on maps of one size, as the pattern has it: of 128 pixels it allows 39, below MAX_LAYERS


class NotationError(ValueError):
    """Text that is no network in this notation; the message says which word, and why."""


def write(spec: ArchitectureSpec) -> str:
    """Return a spec in the compact notation; `read` gives it back."""
    words = [_word(layer.type, layer.model_dump(mode="json", exclude_defaults=True)) for layer in _layers(spec)]
    if spec.head != Classifier():
        words.append(_HEAD + _named(spec.head.model_dump(mode="json", exclude_defaults=True)))
    return " ".join(words)


def read(text: str) -> ArchitectureSpec:
    """Return the spec that a text stands for; commas and arrows between words are passed over.

    Raises:
        NotationError: a word that is no layer.
        ValidationError: a value that no layer can have, or no layer at all.
    """
    words = re.sub(r"[,;]|->|→", " ", text.strip().strip("`\"'").lower()).split()
    if len(words) > _MOST_WORDS:
        raise NotationError(f"{len(words)} words, more than {MAX_LAYERS} layers")
    spec: dict[str, Any] = {"backbone": [_layer(word) for word in words if not word.startswith(_HEAD)]}
    if words and words[-1].startswith(_HEAD):
        spec["head"] = _values(words[-1], words[-1].removeprefix(_HEAD))
    return ArchitectureSpec.model_validate(spec)


def legend(space: Space) -> list[str]:
    """Return what the words of a space mean: its types of layers, then the letters behind them."""
    types = [_MEANINGS[kind] for kind in space.types if kind in _MEANINGS]
    fields = "Options: k kernel 1, 3, 5, 7, default 3; s2 stride; a0 linear, a6 ReLU6; n no batch norm"
    return [f"Types: {', '.join(types)}.", f"{fields}{'; l2 dilation' if space.is_signal else ''}."]


def changes(before: ArchitectureSpec, after: ArchitectureSpec) -> str:
    """Return how one network became another one, word by word: `r24 -> r32, +mb64e3`."""
    from difflib import SequenceMatcher

    old, new = write(before).split(), write(after).split()
    said = []
    for tag, start, end, from_, to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "replace":
            said.append(f"{' '.join(old[start:end])} -> {' '.join(new[from_:to])}")
        elif tag != "equal":
            said.append(f"-{' '.join(old[start:end])}" if tag == "delete" else f"+{' '.join(new[from_:to])}")
    return ", ".join(said)


@lru_cache
def pattern(space: Space) -> str:
    """Return a regular expression of networks for a space's input, with shapes followed from layer to layer.

    It knows the usual fields, no look-around and no back-reference, so that any constrained decoder can keep to it.
    What it cannot know (widths that some types ask for, an accelerator's limits) is validated in any case.
    """

    def stage(size: int) -> str:
        return f"(?: {_keeps(space, size)}){{0,{_PER_STAGE}}}(?:{further(size)})?" if size > 1 else _last(space)

    def further(size: int) -> str:
        return "|".join(f" {words}{stage(after)}" for after, words in _shrinks(space, size).items())

    size = space.side
    first = [f"{_keeps(space, size)}{stage(size)}"]
    return "|".join([*first, *(f"{words}{stage(after)}" for after, words in _shrinks(space, size).items())])


def _last(space: Space) -> str:
    return f"(?: {_keeps(space, 1)}){{0,{_PER_STAGE}}}"


def _keeps(space: Space, size: int) -> str:
    """Return an expression of the layers that keep a map of some size."""
    width, kernel = "[1-9][0-9]{0,2}", "(?:k[1357])?" if size > 2 else "(?:k[13])?"
    words = {
        "conv": f"c{width}{kernel}",
        "depthwise": f"dw(?:{width})?{kernel}",
        "pointwise": f"p{width}",
        "ghost": "g(?:[2468]|[1-9][0-9]?[02468])",
        "bottleneck": f"b{width}(?:e[1-4])?",
        "mbconv": f"mb{width}(?:e[1-6])?{kernel}(?:q0\\.25)?",
        "residual": f"r{width}{kernel}",
    }
    return _any_of(word for kind, word in words.items() if kind in space.types)


def _shrinks(space: Space, size: int) -> dict[int, str]:
    """Return expressions of the layers that make a map smaller, by the size that it then has."""
    width, found = "[1-9][0-9]{0,2}", dict[int, list[str]]()
    strided = {"conv": "c", "depthwise": "dw", "bottleneck": "b", "mbconv": "mb", "residual": "r"}
    if size > 1:
        half = found.setdefault((size + 1) // 2, [])
        half += [f"d{width}(?:k[35])?"] if "downsample" in space.types else []
        half += [f"{word}{width}s2" for kind, word in strided.items() if kind in space.types]
    if size > 1:
        found.setdefault(size // 2, []).extend(f"{KINDS[kind]}2" for kind in _POOLS if kind in space.types)
    return {after: _any_of(words) for after, words in found.items() if words}


def _any_of(words: Any) -> str:
    return f"(?:{'|'.join(words)})"


def _layers(spec: ArchitectureSpec) -> Any:
    return without_derived(spec).backbone


def _word(kind: str, fields: dict[str, Any]) -> str:
    fields.pop("type", None)
    named = {name: fields.pop(name) for name in list(fields) if name not in FIELDS and name != "out_channels"}
    size = fields.pop("kernel_size", 2) if kind in _POOLS else fields.pop("out_channels", "")
    letters = "".join(_field(name, value) for name, value in fields.items())
    return f"{KINDS.get(kind, kind)}{size}{letters}{_named(named)}"


def _field(name: str, value: Any) -> str:
    if name == "use_bn":
        return "n"
    return FIELDS[name] + (_ACTIVATIONS[value] if name == "activation" else f"{value:g}")


def _named(fields: dict[str, Any]) -> str:
    return "".join(f"[{name}={json.dumps(value, separators=(',', ':'))}]" for name, value in fields.items())


@lru_cache
def _expression() -> re.Pattern[str]:
    kinds = sorted({*_TYPES, *LAYERS}, key=lambda word: -len(word))
    return re.compile(rf"({'|'.join(kinds)})(\d+)?((?:[a-z]\d*\.?\d*)*)((?:\[\w+=[^\]\s]*\])*)")


def _layer(word: str) -> dict[str, Any]:
    found = _expression().fullmatch(word)
    if found is None:
        raise NotationError(f"{word[:40]!r} is no layer; one reads like c24, r24k5 or mb64e3s2")
    kind = _TYPES.get(found[1], found[1])
    layer: dict[str, Any] = {"type": kind, **_values(word, found[4])}
    if found[2]:
        layer["kernel_size" if kind in _POOLS else "out_channels"] = int(found[2])
    for letter, value in re.findall(r"([a-z])(\d*\.?\d*)", found[3]):
        name = _NAMES.get(letter)
        if name is None or (not value and name != "use_bn"):
            raise NotationError(f"{word[:40]!r}: {letter + value!r} is no field; fields are {', '.join(_NAMES)}")
        if name == "use_bn":
            layer[name] = False
        elif name == "activation":
            layer[name] = {digit: text for text, digit in _ACTIVATIONS.items()}.get(value, value)
        elif not (kind == "downsample" and name == "stride" and value == "2"):  # that it halves is in its name
            layer[name] = float(value) if "." in value else int(value)
    return layer


def _values(word: str, text: str) -> dict[str, Any]:
    try:
        return {name: json.loads(value) for name, value in re.findall(r"\[(\w+)=([^\]]*)\]", text)}
    except ValueError as error:
        raise NotationError(f"{word[:40]!r}: not [field=value]: {error}") from error
