"""Sound texts, damaged as disks, terminals, tools and language models damage them."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

JUNK = (
    *(
        b"",
        b"\0",
        b"\n",
        b"\xff",
        b"\xed\xa0\x80",
        b"{",
        b"}",
        b'"',
        b"[",
        b",",
        b":",
        b"\\ud800",
        b"\\",
        b"=",
        b" " * 300,
    ),
    *(b"-", b"-1", b"_", b"1e999", b"NaN", b"null", b"true", b"9" * 30, b"9" * 5000, b"[" * 3000, b"{a: " * 300, b"0x"),
)
VALUES = (
    *(
        None,
        True,
        0,
        -1,
        1,
        8,
        2**31,
        2**53,
        2**63,
        -(2**63) - 1,
        10**30,
        1e308,
        -1e308,
        float("nan"),
        float("inf"),
        1e-320,
    ),
    *("", "8", "conv", "\0", "\u202e", "größer 😀", "x" * 3000, [], {}, [[]], {"": 1}, [8] * 50),
)


@st.composite
def texts(draw: st.DrawFn, sound: Sequence[bytes]) -> bytes:
    """A sound text with a few cuts, copies and insertions, or bytes that nobody meant."""
    data = draw(st.sampled_from(sound))
    how = draw(st.integers(0, 9))
    if how == 0:
        return draw(st.binary(max_size=200))
    if how < 5 and data.lstrip()[:1] == b"{":  # lines of JSON
        data = b"\n".join(draw(_values(line)) for line in data.splitlines())
    for _ in range(draw(st.integers(how == 9, 3))):
        at = draw(st.integers(0, len(data)))
        end = draw(st.integers(at, min(len(data), at + 40)))
        piece = draw(st.sampled_from(JUNK) | st.binary(max_size=8) | st.just(data[at:end] * 2))
        data = data[:at] + piece + data[end:]
    return data if draw(st.integers(0, 4)) else data[: draw(st.integers(0, len(data)))]


@st.composite
def _values(draw: st.DrawFn, line: bytes) -> bytes:
    """A line of JSON with one of its values replaced, copied elsewhere or taken away."""
    row = json.loads(line)
    places = list(_places(row))
    if places:
        holder, key = draw(st.sampled_from(places))
        holder[key] = draw(st.sampled_from(VALUES) | st.sampled_from([holder[key] for holder, key in places]))
        if draw(st.integers(0, 5)) == 0:
            del holder[key]
    try:
        return json.dumps(row).encode()
    except ValueError:  # a value within itself
        return line


def _places(value: Any) -> list[tuple[Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(value, key) for key, _ in pairs] + [place for _, part in pairs for place in _places(part)]
