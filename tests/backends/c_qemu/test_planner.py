import random

import pytest

from automcu_ray.sizing.peak_memory import APART, IN_PLACE, Lag
from backends.c_qemu.planner import Buffer, Plan, largest_at_peak, lower_bound_bytes, plan


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
    low, gone, high = Buffer("low", 80, 0, 1), Buffer("gone", 72, 0, 0), Buffer("high", 64, 0, 1)
    made = plan([low, gone, high, Buffer("new", 8, 1, 1)])
    assert made.offsets["new"] == made.offsets["gone"]
    assert made.arena_bytes == 80 + 72 + 64


def test_odd_sizes_are_not_padded() -> None:
    made = plan([Buffer("a", 3, 0, 1), Buffer("b", 5, 0, 1), Buffer("c", 1, 0, 1)])
    assert sorted(made.offsets.values()) == [0, 5, 8]
    assert made.arena_bytes == 9


def test_in_place_takes_no_room() -> None:
    buffers = [Buffer("x", 40, 0, 1), Buffer("relu", 40, 1, 2, (("x", IN_PLACE),)), Buffer("last", 10, 2, 2)]
    made = plan(buffers)
    assert made.offsets["x"] == made.offsets["relu"]
    assert made.arena_bytes == lower_bound_bytes(buffers) == 50


def test_an_output_starts_its_lag_before_its_input() -> None:
    ascending = Lag(9, APART.after)
    buffers = [Buffer("x", 64, 0, 1), Buffer("y", 64, 1, 1, (("x", ascending),))]
    assert plan(buffers) == Plan({"y": 0, "x": 9}, 73)


def test_directions_alternate_along_a_chain() -> None:
    lag = Lag(9, 9)  # down by 9, up again by 9: never more than one lag beyond the size
    chain = [Buffer("a", 64, 0, 1)]
    for step, (before, name) in enumerate([("a", "b"), ("b", "c"), ("c", "d")], start=1):
        chain.append(Buffer(name, 64, step, step + 1, ((before, lag),)))
    assert plan(chain).arena_bytes == lower_bound_bytes(chain) == 73


def test_a_concatenation_lies_over_both_of_its_inputs() -> None:
    over = (("a", IN_PLACE), ("b", Lag(48, APART.after)))
    buffers = [Buffer("a", 48, 0, 2), Buffer("b", 16, 1, 2), Buffer("ab", 64, 2, 3, over)]
    assert plan(buffers) == Plan({"ab": 0, "a": 0, "b": 48}, 64)


def test_no_buffers_need_no_arena() -> None:
    assert (plan([]).arena_bytes, lower_bound_bytes([]), largest_at_peak([])) == (0, 0, None)


def random_buffers(rng: random.Random) -> list[Buffer]:
    """Return buffers with random lives, some of which may lie over one that dies as they are born."""
    buffers: list[Buffer] = []
    for number in range(40):
        first = rng.randrange(30)
        dying = [other.name for other in buffers if other.last == first != other.first]
        lags = [rng.choice([IN_PLACE, Lag(rng.randrange(300), rng.randrange(300))]) for _ in dying]
        over = tuple(zip(dying, lags, strict=True))
        buffers.append(Buffer(f"b{number}", rng.randrange(1, 500), first, first + rng.randrange(8), over))
    return buffers


@pytest.mark.parametrize("seed", range(20))
def test_buffers_that_live_together_overlap_only_as_they_may(seed: int) -> None:
    buffers = random_buffers(random.Random(seed))
    made = plan(buffers)
    start = made.offsets
    end = {buffer.name: start[buffer.name] + buffer.size_bytes for buffer in buffers}
    assert min(start.values()) == 0
    assert max(end.values()) == made.arena_bytes >= lower_bound_bytes(buffers)
    for i, one in enumerate(buffers):
        for other in buffers[:i]:
            if one.lives_with(other) and start[one.name] < end[other.name] and start[other.name] < end[one.name]:
                new, old = (one, other) if other.name in dict(one.over) else (other, one)
                lag = dict(new.over)[old.name]
                in_front = start[new.name] <= start[old.name] - lag.before
                assert in_front or end[new.name] >= end[old.name] + lag.after


def test_a_plan_is_the_same_every_time() -> None:
    buffers = random_buffers(random.Random(3))
    assert plan(buffers) == plan(list(buffers))


def test_an_output_and_scratch_find_the_smallest_place_by_chance() -> None:
    # y ends 320 behind x's end, scratch behind y: 4096 + 320 + 403. Placed by time or size, y lies in front: 9 more.
    x, scratch = Buffer("x", 4096, 0, 1), Buffer("scratch", 403, 1, 1, is_scratch=True)
    buffers = [x, Buffer("y", 384, 1, 2, (("x", Lag(329, 320)),)), scratch]
    assert plan(buffers).arena_bytes == lower_bound_bytes(buffers) == 4819
