import random

import pytest

from backends.planner import ALIGNMENT, Buffer, largest_at_peak, lower_bound_bytes, plan


def test_a_chain_needs_its_largest_pair_of_neighbours() -> None:
    # steps:            a written in 0, read in 1; b 1-2; c 2-3: pairs 300+104, 104+200
    chain = [Buffer("a", 304, 0, 1), Buffer("b", 104, 1, 2), Buffer("c", 200, 2, 3)]
    made = plan(chain)
    assert made.offsets == {"a": 0, "c": 0, "b": 304}
    assert made.arena_bytes == lower_bound_bytes(chain) == 408


def test_a_residual_keeps_its_input_alive() -> None:
    kept = [Buffer("x", 64, 0, 3), Buffer("wide", 192, 1, 2), Buffer("y", 64, 2, 3)]
    assert plan(kept).arena_bytes == 320  # x + wide + y in step 2
    assert largest_at_peak(kept) == kept[1]


def test_a_gap_between_two_buffers_is_filled() -> None:
    buffers = [
        Buffer("low", 80, 0, 1),
        Buffer("gone", 72, 0, 0),
        Buffer("high", 64, 0, 1),
        Buffer("new", 8, 1, 1),
    ]
    assert plan(buffers).offsets == {"low": 0, "gone": 80, "high": 152, "new": 80}


def test_offsets_are_aligned() -> None:
    made = plan([Buffer("a", 3, 0, 1), Buffer("b", 5, 0, 1), Buffer("c", 1, 0, 1)])
    assert sorted(made.offsets.values()) == [0, 8, 16]
    assert made.arena_bytes == 24


def test_no_buffers_need_no_arena() -> None:
    assert (plan([]).arena_bytes, lower_bound_bytes([]), largest_at_peak([])) == (0, 0, None)


@pytest.mark.parametrize("seed", range(20))
def test_buffers_that_live_together_never_overlap(seed: int) -> None:
    rng = random.Random(seed)
    buffers = []
    for number in range(40):
        first = rng.randrange(30)
        buffers.append(Buffer(f"b{number}", rng.randrange(1, 500), first, first + rng.randrange(8)))
    made = plan(buffers)
    for i, one in enumerate(buffers):
        assert made.offsets[one.name] % ALIGNMENT == 0
        assert made.offsets[one.name] + one.size_bytes <= made.arena_bytes
        for other in buffers[:i]:
            if one.lives_with(other):
                low, high = sorted((one, other), key=lambda b: made.offsets[b.name])
                assert made.offsets[low.name] + low.size_bytes <= made.offsets[high.name]
    assert made.arena_bytes >= lower_bound_bytes(buffers)
