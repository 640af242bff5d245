"""The compact notation of specs: `c24 r24 d32 mb64e3k5`, a word a layer, in a twentieth of the characters of JSON.

A word is a type, its output channels (of a pool: its window), and the fields that differ from their defaults, each a
letter and a value; a head that differs from its defaults is a last word, `h2`. What has no letter is written by its
name, `c24[padding=0]`, so that every spec can be written. Which words fit an input: `notation_pattern`.
"""

import json
import re
from functools import lru_cache
from typing import Any

from automcu_ray.networks.lowering import CODE, DECODER
from automcu_ray.networks.morphisms import JOINS, POOLS
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
    "skip": "sk",
    "concat": "cat",
}
FIELDS = {
    "kernel_size": "k",
    "stride": "s",
    "expansion": "e",
    "se_ratio": "q",
    "ratio": "t",
    "dw_size": "z",
    "dilation": "l",
    "groups": "g",
    "use_bn": "n",
    "activation": "a",
}
HEAD = "h"
HEAD_FIELDS = {"code": "c", "decoder": "d"}
_ACTIVATIONS = {"relu": "1", "relu6": "6", "none": "0"}
_TYPES = {word: kind for kind, word in KINDS.items()}
_NAMES = {letter: name for name, letter in FIELDS.items()}
# What stands behind the type, where that is not the output channels; and what is written where it is the default.
_FIRST: dict[str, tuple[str, Any]] = {kind: ("kernel_size", 2) for kind in POOLS} | {k: ("back", 2) for k in JOINS}
_MEANINGS = {
    "conv": "c convolution",
    "depthwise": "dw depthwise",
    "pointwise": "p 1x1",
    "downsample": "d stride-2 convolution",
    "ghost": "g ghost (even width)",
    "bottleneck": "b bottleneck (e hidden/input, default 1)",
    "mbconv": "mb mbconv (e expansion, default 4; q squeeze-excite)",
    "residual": "r residual",
    "max_pool": "mp max pool",
    "avg_pool": "ap average pool",
    "skip": "sk2 adds the output 2 layers back",
    "concat": "cat2 joins it (equal maps)",
}
_OPTIONS = {  # beside those that a type's meaning names
    "stride": "s2 stride",
    "dilation": "l2 dilation",
    "groups": "g2 groups",
    "dw_size": "z second kernel of g",
}
_MOST_WORDS = 200


class NotationError(ValueError):
    """Text that is no network in this notation; the message says which word, and why."""


def write(spec: ArchitectureSpec) -> str:
    """Return a spec in the compact notation; `read` gives it back."""
    layers = without_derived(spec).backbone
    words = [_word(layer.type, layer.model_dump(mode="json", exclude_defaults=True)) for layer in layers]
    if spec.head != Classifier():
        fields = spec.head.model_dump(mode="json", exclude_defaults=True)
        positions = fields.pop("positions", 1)
        letters = "".join(f"{letter}{fields.pop(name)}" for name, letter in HEAD_FIELDS.items() if name in fields)
        words.append(f"{HEAD}{positions}{letters}{_named(fields)}")
    return " ".join(words)


def read(text: str) -> ArchitectureSpec:
    """Return the spec that a text stands for; commas and arrows between words are passed over.

    Raises:
        NotationError: a word that is no layer, or last no head.
        ValidationError: a value that no layer can have, or no layer at all.
    """
    words = re.sub(r"[,;]|->|→", " ", text.strip().strip("`\"'").lower()).split()
    if len(words) > _MOST_WORDS:
        raise NotationError(f"{len(words)} words, more than {MAX_LAYERS} layers")
    head = words.pop() if words and words[-1].startswith(HEAD) else ""
    spec: dict[str, Any] = {"backbone": [_layer(word) for word in words]}
    if head:
        spec["head"] = _head(head)
    return ArchitectureSpec.model_validate(spec)


def legend(space: Space) -> list[str]:
    """Return what the words of a space mean: its types of layers, the letters behind them, the head."""
    asked = {question.field for question in space.questions if len(set(question.values)) > 1}
    windows = [kind for kind in space.types if kind not in (*POOLS, *JOINS)]
    kernels = [size for size in (1, 3, 5, 7) if any(space.allows(kind, "kernel_size", size) for kind in windows)]
    asked |= {"stride"} if any(space.allows(kind, "stride", 2) for kind in windows) else set()
    types = [_MEANINGS[kind] for kind in space.types if kind in _MEANINGS]
    options = [f"{' '.join(f'k{size}' for size in kernels if size != 3)} kernel (else 3)"]
    options += [*(said for name, said in _OPTIONS.items() if name in asked), "a0 linear", "a6 ReLU6", "n no batch norm"]
    lines = [f"Types: {', '.join(types)}.", f"Options: {', '.join(options)}."]
    head = []
    if "positions" in asked:
        head.append(f"h2 to h8, positions{'' if space.is_signal else ' a side'} that the head keeps")
    if "code" in asked:
        head.append(
            f"h1c{CODE}d{DECODER} has {CODE} values in its bottleneck and {DECODER} in its decoder, the default"
        )
    return [*lines, *([f"Last word, optional: {'; '.join(head)}."] if head else [])]


def changes(before: str, after: str) -> str:
    """Return how one line of words became another one, word by word: `r24 -> r32, +mb64e3`."""
    from difflib import SequenceMatcher

    old, new = before.split(), after.split()
    said = []
    for tag, start, end, from_, to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "replace":
            said.append(f"{' '.join(old[start:end])} -> {' '.join(new[from_:to])}")
        elif tag != "equal":
            said.append(f"-{' '.join(old[start:end])}" if tag == "delete" else f"+{' '.join(new[from_:to])}")
    return ", ".join(said)


def _word(kind: str, fields: dict[str, Any]) -> str:
    fields.pop("type", None)
    first = _FIRST.get(kind, ("out_channels", ""))
    named = {name: fields.pop(name) for name in list(fields) if name not in FIELDS and name != first[0]}
    size = fields.pop(*first)
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
        layer[_FIRST.get(kind, ("out_channels", ""))[0]] = int(found[2])
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


def _head(word: str) -> dict[str, Any]:
    found = re.fullmatch(r"h(?:ead)?(\d*)((?:[a-z]\d+)*)((?:\[\w+=[^\]\s]*\])*)", word)
    names = {letter: name for name, letter in HEAD_FIELDS.items()}
    fields = re.findall(r"([a-z])(\d+)", found[2]) if found is not None else []
    if found is None or not all(letter in names for letter, _ in fields):
        raise NotationError(f"{word[:40]!r} is no head; one reads like h2, or h1c8d64 of an autoencoder")
    numbers = {"positions": found[1]} if found[1] else {}
    numbers |= {names[letter]: value for letter, value in fields}
    return {name: int(value) for name, value in numbers.items()} | _values(word, found[3])


def _values(word: str, text: str) -> dict[str, Any]:
    try:
        return {name: json.loads(value) for name, value in re.findall(r"\[(\w+)=([^\]]*)\]", text)}
    except ValueError as error:
        raise NotationError(f"{word[:40]!r}: not [field=value]: {error}") from error
