"""The compact notation: nothing is lost on the way, and its pattern follows shapes."""

import json
import re
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from automcu_ray.networks import notation
from automcu_ray.networks.notation import NotationError, changes, pattern, read, write
from automcu_ray.networks.search_space import Space
from automcu_ray.networks.spec import ArchitectureSpec

DIGITS = Space(input_shape=(1, 8, 8), num_classes=10)


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
    assert changes(read("c16 r16 d32"), read("c16 r24 d32 mb32")) == "r16 -> r24, +mb32"
    assert changes(read("c16 r16 d32"), read("c16 d32")) == "-r16"


def test_the_pattern_follows_the_map_from_layer_to_layer() -> None:
    expression = re.compile(pattern(DIGITS))
    for line in ("c24 r24 d32 mb64e3k5", "c8 mp2 mp2 mp2", "d8 d8 d8 c9", "c24s2 r32s2 b16s2"):
        assert expression.fullmatch(line), line
    for line in ("c24 mp2 mp2 mp2 mp2", "d8 d8 d8 d8", "c24 x", "", " c24", "c24  c24", "g7", "c24 " * 30 + "c1"):
        assert not expression.fullmatch(line), line


def test_what_the_pattern_allows_can_be_built() -> None:
    """Lines drawn at random from the words that it has, kept where it accepts them."""
    expression, rng = re.compile(pattern(DIGITS)), Random(1)
    words = [
        "c16",
        "c16k7",
        "dw",
        "dw16",
        "p8",
        "d16k5",
        "g16",
        "b16e2",
        "mb16e3",
        "r16k3",
        "mp2",
        "ap2",
        "c8s2",
        "r8s2",
    ]
    accepted = 0
    for _ in range(3000):
        line = " ".join(rng.choices(words, k=rng.randint(1, 6)))
        if expression.fullmatch(line):
            accepted += 1
            DIGITS.candidate(read(line))  # raises where it cannot be built
    assert accepted > 500


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
    assert not accepts("c24 mp2 mp2 mp2 mp2")


def test_types_without_a_letter_are_written_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(notation.KINDS, "ghost")
    network = spec({"type": "ghost", "out_channels": 8, "ratio": 4})
    assert write(network) == "ghost8t4"
