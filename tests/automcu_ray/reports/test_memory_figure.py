"""The arena over one inference: figures by hand, and a box for each buffer."""

from automcu_ray.core.memory_map import MemoryMap, PlacedBuffer
from automcu_ray.reports.memory_figure import memory_figure


def buffer(layer: str, start: int, size: int, first: int, last: int, *, scratch: bool = False) -> PlacedBuffer:
    return PlacedBuffer(layer=layer, start_bytes=start, size_bytes=size, first=first, last=last, is_scratch=scratch)


ARENA = MemoryMap(
    arena_bytes=1000,
    steps=("layer_1", "layer_2", "head"),
    buffers=(
        buffer("layer_1", 0, 600, 0, 1),
        buffer("layer_2", 500, 400, 1, 2),  # over the last 100 bytes of its input
        buffer("layer_2", 900, 100, 1, 1, scratch=True),
        buffer("head", 0, 10, 2, 2),
    ),
)


def test_what_lies_over_each_other_counts_once() -> None:
    assert [ARENA.occupied_bytes(step) for step in range(3)] == [600, 1000, 410]
    assert ARENA.fullest == 1
    assert MemoryMap(arena_bytes=0, steps=(), buffers=()).fullest is None


def test_every_buffer_is_a_box_and_large_ones_say_whose_they_are() -> None:
    drawn = memory_figure(ARENA)
    assert drawn.count("fill-opacity") + drawn.count("opacity: 0.6") >= len(ARENA.buffers)
    assert drawn.count(">layer_1<") == 2 and drawn.count(">head<") == 1, "beside the axis, and in boxes with room"
    assert "scratch of a layer" in drawn and "var(--orange)" in drawn


def test_very_many_operators_leave_room_between_their_names() -> None:
    steps = tuple(f"layer_{number}" for number in range(500))
    many = MemoryMap(arena_bytes=64, steps=steps, buffers=(buffer("layer_0", 0, 64, 0, 499),))
    assert memory_figure(many).count(">layer_") <= 41


def test_names_of_any_length_leave_room_for_the_figure() -> None:
    long = MemoryMap(arena_bytes=64, steps=("a" * 300, "b"), buffers=(buffer("a" * 300, 0, 64, 0, 1),))
    assert ">…" + 23 * "a" + "<" in memory_figure(long)
