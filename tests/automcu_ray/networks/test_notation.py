"""The compact notation: nothing is lost on the way, and its pattern follows shapes."""

import json
import re
from random import Random
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from pydantic import ValidationError

from automcu_ray.networks import notation
from automcu_ray.networks.graph import ConstructibilityError
from automcu_ray.networks.notation import FIELDS, HEAD_FIELDS, NotationError, changes, legend, read, write
from automcu_ray.networks.notation_pattern import pattern
from automcu_ray.networks.operator_limits import Operator
from automcu_ray.networks.search_space import Space
from automcu_ray.networks.spec import ArchitectureSpec

DIGITS = Space(input_shape=(1, 8, 8), num_classes=10)
WIDE = Space(input_shape=(1, 49, 10), num_classes=10)
SIGNAL = Space(input_shape=(6, 1, 100), num_classes=4)
AUTOENCODER = Space(input_shape=(1, 1, 64), num_classes=64, reconstructs=True)
CONV = Operator(type="conv", kernel_size=(1, 3), stride=(1,), groups=(1,))
NARROW = Space(input_shape=(1, 8, 8), num_classes=10, operators=(CONV, Operator(type="max_pool")))
SPACES = {"square": DIGITS, "wide": WIDE, "signal": SIGNAL, "autoencoder": AUTOENCODER, "accelerator": NARROW}


def spec(*layers: dict[str, Any]) -> ArchitectureSpec:
    return ArchitectureSpec.model_validate({"backbone": layers})


def test_a_line_says_types_widths_and_what_is_not_default() -> None:
    network = spec(
        {"type": "conv", "out_channels": 24},
        {"type": "downsample", "out_channels": 32},
        {"type": "mbconv", "out_channels": 64, "expansion": 3, "kernel_size": 5, "se_ratio": 0.25},
        {"type": "max_pool", "kernel_size": 3, "stride": 2},
        {"type": "conv", "out_channels": 8, "use_bn": False, "activation": "relu6", "padding": 0},
    )
    assert write(network) == "c24 d32 mb64e3k5q0.25 mp3s2 c8na6[padding=0]"
    assert read("c24, D32s2 -> mb64e3k5q0.25 mp3s2 c8na6[padding=0]") == network


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 1, 128)])
def test_every_spec_comes_back(shape: tuple[int, int, int]) -> None:
    space, rng = Space(input_shape=shape, num_classes=10), Random(0)
    for _ in range(150):
        found = space.mutate(space.sample(rng), rng)
        assert found.spec is not None
        assert space.candidate(read(write(found.spec))).hash == found.hash


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x24", NotationError),
        ("c24y3", NotationError),
        ("c24k", NotationError),
        ("c24[padding=", NotationError),
        ("c " * 300, NotationError),
        ("", ValidationError),
        ("c24k4", ValidationError),
        ("c0", ValidationError),
        ("c", ValidationError),
        (f"c{'9' * 50}", ValidationError),
    ],
)
def test_what_is_no_network_is_refused_in_words(text: str, error: type[ValueError]) -> None:
    with pytest.raises(error):
        read(text)


def test_changes_are_said_word_by_word() -> None:
    assert changes("c16 r16 d32", "c16 r24 d32 mb32") == "r16 -> r24, +mb32"
    assert changes("c16 r16 d32", "c16 d32") == "-r16"


def test_the_pattern_follows_the_map_from_layer_to_layer() -> None:
    expression = re.compile(pattern(DIGITS))
    for line in ("c24 r24 d32 mb64e3k5", "c8 mp2 mp2 mp2", "d8 d8 d8 c9", "c24s2 r32s2 b16s2"):
        assert expression.fullmatch(line), line
    for line in ("c24 mp2 mp2 mp2 mp2", "d8 d8 d8 d8", "c24 x", "", " c24", "c24  c24", "g7", "c24 " * 30 + "c1"):
        assert not expression.fullmatch(line), line


def drawn(parsed: Any, rng: Random) -> str:
    """A text that a parsed regular expression accepts; what may repeat does so at most once more than it must."""
    text = ""
    for kind, value in parsed:
        if kind is _constants.LITERAL:
            text += chr(value)
        elif kind is _constants.IN:
            low, high = rng.choice([(v, v) if k is _constants.LITERAL else v for k, v in value])
            text += chr(rng.randint(low, high))
        elif kind is _constants.BRANCH:
            text += drawn(rng.choice(value[1]), rng)
        elif kind is _constants.SUBPATTERN:
            text += drawn(value[3], rng)
        else:
            assert kind is _constants.MAX_REPEAT, kind
            least, most, inside = value
            text += "".join(drawn(inside, rng) for _ in range(rng.randint(least, min(most, least + 1))))
    return text


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_whatever_the_pattern_allows_can_be_built(space: Space) -> None:
    parsed, rng, used = _parser.parse(pattern(space)), Random(1), ""
    for _ in range(250):
        line = drawn(parsed, rng)
        try:
            space.candidate(read(line))
        except ConstructibilityError as error:
            assert "channels at most" in str(error)  # of several wide maps, joined
        used += f"{line} "
    asked = {question.field for question in space.questions if len(set(question.values)) > 1} - {
        "layers",
        "type",
        "out_channels",
        "kernel_size",
        "ratio",
    }
    letters = {**FIELDS, **HEAD_FIELDS, "positions": "h", "back": "sk"}
    assert all(re.search(rf"[a-z0-9 ]{letters[field]}[1-9]", used) for field in asked - {"se_ratio"})


def test_joins_read_maps_that_they_can_join() -> None:
    expression = re.compile(pattern(Space(input_shape=(1, 7, 7), num_classes=10)))
    for line in ("c8 r8 sk2", "c8 d16 sk2", "c8 d16 r16 sk3", "c8 r8 cat2 cat3", "c8 d16 r16 cat2", "c8 mp2 c8 sk2"):
        assert expression.fullmatch(line), line
    for line in ("c8 sk2", "d8 sk2", "c8 d16 cat2", "c8 mp2 sk2", "c8 mp2 c8 sk3", "sk2", "c8 r8 sk9"):
        assert not expression.fullmatch(line), line


def test_groups_divide_the_channels_that_reach_them_and_heads_fit_the_last_map() -> None:
    expression = re.compile(pattern(DIGITS))
    for line in ("c8 c16g4", "d16 p12 c24k5g2", "c8 h8", "c8 d8 h4", "c8 d8 d8 d8"):
        assert expression.fullmatch(line), line
    for line in ("c16g4", "c6 c16g4", "c8 d8 h5", "c8 d8 d8 d8 h2", "c8 h1", "h2", "c8 h2 c8", "c8 h2c8d64", "c8l2"):
        assert not expression.fullmatch(line), line


def test_a_head_is_the_last_word() -> None:
    network = ArchitectureSpec.model_validate(
        {"backbone": [{"type": "conv", "out_channels": 8}], "head": {"positions": 4}}
    )
    assert write(network) == "c8 h4" and read("c8 h4") == read("c8 head[positions=4]") == network
    coded = network.replace(head=network.head.replace(positions=1, code=8, decoder=64))
    assert write(coded) == "c8 h1c8d64" and read("c8 h1c8d64") == coded
    for wrong in ("h2 c8", "c8 h2 c8", "c8 h2x8", "c8 hello"):
        with pytest.raises(NotationError):
            read(wrong)


def test_the_legend_names_what_a_space_asks_about_and_nothing_else() -> None:
    said = {space: " ".join(legend(space)) for space in (DIGITS, SIGNAL, AUTOENCODER, NARROW)}
    assert all(word in said[DIGITS] for word in ("sk2", "cat2", "g2 groups", "h2 to h8", "z second kernel"))
    assert "l2 dilation" in said[SIGNAL] and "a side" in said[DIGITS] and "a side" not in said[SIGNAL]
    assert "dilation" not in said[DIGITS] and "decoder" not in said[DIGITS]
    assert "h1c8d64" in said[AUTOENCODER]
    assert not any(word in said[NARROW] for word in ("sk2", "groups", "h2 to", "ghost", "s2", "k5"))


@pytest.mark.thorough
def test_constrained_decoders_understand_the_pattern() -> None:
    xgrammar = pytest.importorskip("xgrammar")
    schema = {"type": "object", "properties": {"n": {"type": "string", "pattern": f"^(?:{pattern(DIGITS)})$"}}}
    schema |= {"required": ["n"], "additionalProperties": False}
    letters = [chr(code) for code in range(32, 127)]
    about = xgrammar.TokenizerInfo([*letters, "</s>"], stop_token_ids=[len(letters)])
    compiled = xgrammar.GrammarCompiler(about).compile_grammar(xgrammar.Grammar.from_json_schema(json.dumps(schema)))

    def accepts(line: str) -> bool:
        matcher = xgrammar.GrammarMatcher(compiled)
        return all(matcher.accept_token(letters.index(letter)) for letter in json.dumps({"n": line}))

    assert accepts("c24 r24 d32 mb64e3k5")
    assert accepts("c24 dw c8 sk2 d16 h2") and accepts("dw240 c8")
    for line in ("c24 mp2 mp2 mp2 mp2", "c24 dw0", "dw0", "c24 sk2", "c24 h9"):
        assert not accepts(line), line


def test_types_without_a_letter_are_written_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(notation.KINDS, "ghost")
    network = spec({"type": "ghost", "out_channels": 8, "ratio": 4})
    assert write(network) == "ghost8t4"
