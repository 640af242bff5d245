"""The static bound of the stack: frames along the deepest chain of calls, an allowance for what is not ours."""

import pytest

from automcu_ray.core.errors import ToolchainError
from backends.c_qemu.stack import HARNESS_BYTES, SMALL_BYTES, bound_bytes, library_bytes


def graph(frames: dict[str, str], calls: list[tuple[str, str]], external: tuple[str, ...] = ()) -> str:
    nodes = [f'node: {{ title: "{name}" label: "{name}\\nnet.c:1:1\\n{size}" }}' for name, size in frames.items()]
    others = [f'node: {{ title: "{name}" label: "{name}\\n<built-in>" shape : ellipse }}' for name in external]
    edges = [f'edge: {{ sourcename: "{a}" targetname: "{b}" label: "net.c:2:2" }}' for a, b in calls]
    return "\n".join(['graph: { title: "net.c"', *nodes, *others, *edges, "}"])


def test_the_deepest_chain_counts_and_not_the_sum() -> None:
    frames = {"net": "100 bytes (static)", "a": "40 bytes (static)", "b": "64 bytes (static)", "c": "8 bytes (static)"}
    calls = [("net", "a"), ("net", "b"), ("a", "c"), ("net", "a")]
    assert bound_bytes(graph(frames, calls)) == HARNESS_BYTES + 168  # net, b: 164, rounded up to a multiple of 8


def test_what_a_library_uses_is_an_allowance() -> None:
    frames = {"net": "100 bytes (static)", "net.c:a": "28 bytes (dynamic,bounded)"}
    text = graph(frames, [("net", "net.c:a"), ("net.c:a", "expf"), ("net", "memcpy")], ("expf", "memcpy"))
    assert bound_bytes(text) == HARNESS_BYTES + SMALL_BYTES + 128


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "should hold net"),
        ("rubbish\n" * 100, "should hold net"),
        (graph({"net": "8 bytes (static)", "a": "8 bytes (dynamic)"}, []), "a has no bound: it grows"),
        (graph({"net": "8 bytes (static)"}, [("net", "net")]), "net has no bound: it calls itself"),
        (
            graph({"net": "8 bytes (static)", "a": "8 bytes (static)"}, [("net", "a"), ("a", "net")]),
            "has no bound: it calls itself",
        ),
        (graph({"net": "8 bytes (static)"}, [("net", "__indirect_call")]), "calls through a pointer"),
    ],
)
def test_a_depth_that_nobody_can_bound_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ToolchainError, match=message):
        bound_bytes(text)


@pytest.mark.parametrize(
    ("function", "most"),
    [  # what newlib-nano of GCC 12.2 needs on the core where it needs most, by disassembly
        ("expf", 80),
        ("fmaf", 88),
        ("nearbyint", 104),
        ("powf", 136),
        ("log1p", 168),
        ("__aeabi_ldivmod", 108),
        ("memmove", 20),
        ("tanf", 552),
        ("sinf", 552),
        ("pow", 256),
        ("sin", 832),
    ],
)
def test_allowances_are_well_above_what_a_library_needs(function: str, most: int) -> None:
    assert most * 1.15 < library_bytes(function) <= 1024


def test_a_function_that_nobody_has_looked_at_gets_the_largest_allowance() -> None:
    assert [library_bytes(name) for name in ("expf", "sinf", "lgammaf", "sinfoo")] == [256, 640, 1024, 1024]


def test_a_frame_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(ToolchainError, match="should give net a frame of bytes, found 99999999999999999999\\.\\.\\."):
        bound_bytes('node: { title: "net" label: "net\\nnet.c:1:1\\n' + "9" * 5000 + ' bytes (static)" }\n')
