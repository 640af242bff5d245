"""Best orders and lags, against numbers worked out by hand and against plain enumeration."""

from itertools import count, permutations
from random import Random

import numpy as np
import pytest

from automcu_ray.sizing import peak_memory
from automcu_ray.sizing.peak_memory import (
    ANYWHERE,
    APART,
    IN_PLACE,
    Axis,
    Lag,
    Step,
    best_order,
    live_sizes,
    window_lag,
)


def test_a_chain_needs_its_largest_pair_of_neighbours() -> None:
    chain = [Step((), 300, ()), Step((0,), 100, (APART,)), Step((1,), 200, (APART,)), Step((2,), 0, (APART,))]
    assert live_sizes(chain, best_order(chain)) == [300, 400, 300, 200]


def test_a_residual_keeps_its_input_alive_and_the_sum_takes_its_place() -> None:
    # x 64 | wide 192, x stays | narrow 64, x and wide stay | sum of x and narrow, in the place of either
    steps = [Step((), 64, ()), Step((0,), 192, (APART,)), Step((1,), 64, (APART,)), Step((0, 2), 64, (IN_PLACE,) * 2)]
    assert live_sizes(steps, range(4)) == [64, 256, 320, 128]


def test_an_output_shares_all_but_its_lag_with_an_input_that_dies() -> None:
    steps = [Step((), 100, ()), Step((0,), 80, (Lag(30, 10),)), Step((0, 1), 1, (APART, APART))]
    assert live_sizes(steps, range(3)) == [100, 180, 181]  # the input is read once more: nothing may be shared
    dies = [steps[0], steps[1], Step((1,), 1, (APART,))]
    assert live_sizes(dies, range(3)) == [100, 110, 81]  # 70 of 80 over it, written backwards


def test_two_inputs_share_no_more_than_the_output_has() -> None:
    joined = [Step((), 60, ()), Step((), 40, ()), Step((0, 1), 100, (IN_PLACE, Lag(60, APART.after)))]
    assert live_sizes(joined, range(3)) == [60, 100, 100]
    added = [Step((), 60, ()), Step((), 60, ()), Step((0, 1), 60, (IN_PLACE, IN_PLACE))]
    assert live_sizes(added, range(3)) == [60, 120, 120]


def test_an_output_that_nobody_reads_is_gone_after_its_step() -> None:
    assert live_sizes([Step((), 7, ()), Step((), 5, ())], range(2)) == [7, 5]


def test_the_branch_that_ends_small_goes_first() -> None:
    # x 100 -> a 90 -> b 10 and x -> c 50: b first leaves 10 beside x while c is written, c first leaves 50 beside a
    steps = [
        Step((), 100, ()),
        Step((0,), 50, (APART,)),
        Step((0,), 90, (APART,)),
        Step((2,), 10, (APART,)),
        Step((1, 3), 5, (APART, APART)),
    ]
    assert max(live_sizes(steps, range(5))) == 100 + 50 + 90
    assert best_order(steps) == [0, 2, 3, 1, 4]
    assert max(live_sizes(steps, [0, 2, 3, 1, 4])) == 100 + 90 + 10


def random_steps(rng: Random, count: int) -> list[Step]:
    """Return a random graph; nobody reads some of its outputs."""
    steps = []
    for index in range(count):
        reads = {rng.randrange(index) for _ in range(min(index, rng.randint(0, 3)))}
        lags = tuple(
            rng.choice([APART, IN_PLACE, ANYWHERE, Lag(rng.randint(0, 60), rng.randint(0, 60))]) for _ in reads
        )
        steps.append(Step(tuple(sorted(reads)), rng.randint(0, 50), lags))
    return steps


@pytest.mark.parametrize("seed", range(30))
def test_no_order_is_better_than_the_best(seed: int) -> None:
    steps = random_steps(Random(seed), 7)
    orders = (
        order
        for order in permutations(range(7))
        if all(order.index(read) < at for at, index in enumerate(order) for read in steps[index].reads)
    )
    found = best_order(steps)
    assert sorted(found) == list(range(7))
    assert max(live_sizes(steps, found)) == min(max(live_sizes(steps, order)) for order in orders)


def test_a_very_wide_graph_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = [
        Step((), 1, ()),
        *(Step((0,), 10 - i, (APART,)) for i in range(8)),
        Step(tuple(range(1, 9)), 1, (APART,) * 8),
    ]
    monkeypatch.setattr(peak_memory, "MAX_STATES", 50)
    assert best_order(wide) == list(range(10))


def simulated_lag(groups: int, planes: tuple[int, int], rows: Axis, columns: Axis, *, backwards: bool) -> int:
    """Return the lag by its definition: over all outputs, what is written may not be read later."""
    outputs = np.ndindex(groups, planes[1], rows.written, columns.written)
    written, read_first, read_last = [], [], []
    for number, (group, _, y, x) in enumerate(outputs):
        inside = [
            (group * planes[0] + plane, row, column)
            for plane in (0, planes[0] - 1)
            for row in _window(rows, y)
            for column in _window(columns, x)
        ]
        flat = [(plane * rows.read + row) * columns.read + column for plane, row, column in inside]
        written.append(number)
        read_first.append(min(flat))
        read_last.append(max(flat))
    total_read, total_written = groups * planes[0] * rows.read * columns.read, len(written)
    if backwards:
        written = [total_written - 1 - number for number in reversed(written)]
        read_first = [total_read - 1 - address for address in reversed(read_last)]
    return max(int(number - address) for number, address in zip(written, read_first, strict=True))


def _window(axis: Axis, at: int) -> list[int]:
    start = at * axis.stride - axis.pad
    return [place for place in range(start, start + axis.reach + 1) if 0 <= place < axis.read]


@pytest.mark.parametrize("seed", range(60))
def test_a_windows_lag_is_what_walking_over_all_outputs_finds(seed: int) -> None:
    rng = Random(seed)
    groups, planes = rng.choice([(1, (3, 5)), (1, (4, 1)), (4, (1, 1)), (3, (2, 1)), (2, (1, 3))])

    def axis() -> Axis:
        kernel, stride, read = rng.choice([1, 2, 3, 5]), rng.choice([1, 1, 2, 3]), rng.randint(5, 9)
        pad, pad_after = rng.randrange(kernel), rng.randrange(kernel)
        return Axis(read, (read + pad + pad_after - kernel) // stride + 1, stride, pad, kernel - 1)

    rows, columns = axis(), axis()
    forwards, backwards = (simulated_lag(groups, planes, rows, columns, backwards=b) for b in (False, True))
    assert window_lag(groups, planes, rows, columns) == (forwards, backwards)


def test_lags_by_hand() -> None:
    same = Axis(8, 8, 1, 1, 2)
    assert window_lag(16, (1, 1), same, same) == (9, 9)  # depthwise 3x3: one row and one pixel behind
    assert window_lag(1, (16, 16), same, same) == (15 * 64 + 9, 15 * 64 + 9)  # dense: the last plane over the first
    point = Axis(8, 8, 1, 0, 0)
    assert window_lag(1, (4, 1), point, point) == (0, 0)  # one plane out of four: in place
    halved = Axis(8, 4, 2, 0, 1)
    assert window_lag(16, (1, 1), halved, halved) == (0, 0)  # pooling: in place


def test_what_nobody_reads_runs_when_least_is_alive() -> None:
    # 0: 80, 1: 5, then 2 (100, unread) and 3 (90) in either order, 4: 1. Before 3 it needs 80 + 5 + 100, right after it
    # 5 + 90 + 100, at the end 5 + 1 + 100: then 3 is the peak.
    steps = [
        Step((), 80, ()),
        Step((0,), 5, (APART,)),
        Step((1,), 100, (APART,)),
        Step((0, 1), 90, (APART, APART)),
        Step((3,), 1, (APART,)),
    ]
    assert max(live_sizes(steps, best_order(steps))) == 80 + 5 + 90


def test_the_search_for_an_order_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, run = count(1), peak_memory._run
    monkeypatch.setattr(peak_memory, "_run", lambda *args: (next(tried), run(*args))[1])
    wide = [
        Step((), 1, ()),
        *(Step((0,), 20 - i, (APART,)) for i in range(18)),  # 2^18 sets
        Step(tuple(range(1, 19)), 1, (APART,) * 18),
    ]
    assert best_order(wide) == list(range(20))
    assert (
        peak_memory.MAX_STATES < next(tried) < 20 * peak_memory.MAX_STATES
    )  # of 2^17 x 18 ways from a set to the next
