"""Occam growth: which networks are asked for in which order, and what is proposed before a result is there."""

from collections.abc import Callable

import pytest

from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.cell import CellSpec
from automcu_ray.problem.task import Task
from automcu_ray.testing.searcher_contract import SearcherContract, drive
from searchers.heuristic import Heuristic
from searchers.heuristics.colabnas_growth import BLOCKS, CellGrowth, NetworkGrowth
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import HeuristicSearch
from tests.searchers.conftest import state, train_cells


class TestHeuristic(SearcherContract):
    def make(self, task: Task, seed: int) -> TuneSearcher:
        return HeuristicSearch(task, seed=seed)


def described(candidate: Candidate) -> tuple[str, int, int]:
    """Block, first width and number of cells of a grown network."""
    assert candidate.spec is not None
    layers = candidate.spec.backbone
    return layers[-1].type, layers[0].out_channels, len(layers) // 2  # type: ignore[return-value, union-attr]


def asked(growth: NetworkGrowth, accuracy: Callable[[str, int, int], float]) -> list[tuple[str, int, int]]:
    """Which networks growth asks about, each once, in order."""
    found: list[tuple[str, int, int]] = []

    def ask(candidate: Candidate) -> float:
        if described(candidate) not in found:
            found.append(described(candidate))
        return accuracy(*described(candidate))

    growth.walk(ask)
    return found


def test_cells_are_added_while_they_pay_then_the_width_doubles_while_that_pays(task: Task) -> None:
    # two cells are best at any width; twice the width gains 0.1, until 16 channels gain 0.004 over 8
    table = {4: 0.5, 8: 0.6, 16: 0.604}
    found = asked(NetworkGrowth(task.space, 4), lambda block, w, c: table.get(w, 0.1) + min(c, 2) / 10 - (c == 3) * 0.1)
    assert found[:12] == [("conv", width, cells) for width in (4, 8, 16) for cells in range(4)]
    assert found[12] == ("residual", 8, 1)  # 8 channels stay, and without a cell there is no block to try


def test_the_first_doubling_pays_with_any_gain_and_the_next_with_half_a_percent(task: Task) -> None:
    table = {4: 0.5, 8: 0.501, 16: 0.505}
    widths = {w for _, w, _c in asked(NetworkGrowth(task.space, 4), lambda _b, w, c: table.get(w, 0.0) - c)}
    assert widths >= {4, 8, 16} and 32 not in widths


def test_where_doubling_does_not_pay_the_width_is_halved_while_that_costs_nothing(task: Task) -> None:
    table = {4: 0.5, 8: 0.5, 2: 0.5, 1: 0.4}
    found = asked(NetworkGrowth(task.space, 4), lambda _block, w, c: table.get(w, 0.0) - c)
    assert [width for _, width, cells in found if cells == 0][:4] == [4, 8, 2, 1]


def test_each_cell_pools_and_widens_by_less_than_the_one_before(task: Task) -> None:
    made = NetworkGrowth(task.space, 4).network(4, 3, BLOCKS[0])
    assert made is not None and made.spec is not None
    assert [layer.type for layer in made.spec.backbone] == ["conv", *["max_pool", "conv"] * 3]
    assert [layer.out_channels for layer in made.spec.backbone[::2]] == [4, 8, 12, 15]  # type: ignore[union-attr]
    assert NetworkGrowth(task.space, 4).network(4, 4, BLOCKS[0]) is None  # 8x8 can be halved three times


def test_growth_ends_where_everything_is_refused(task: Task) -> None:
    found = asked(NetworkGrowth(task.space, 4), lambda *_: float("-inf"))
    assert found[:16] == [("conv", width, cells) for width in (4, 8, 2, 1) for cells in range(4)]


def test_cells_are_added_until_a_network_is_accepted(task: Task) -> None:
    found = asked(NetworkGrowth(task.space, 4), lambda _block, w, c: float("-inf") if c < 2 or w > 4 else 0.5)
    assert found[:4] == [("conv", 4, 0), ("conv", 4, 1), ("conv", 4, 2), ("conv", 4, 3)]


def test_cells_grow_from_the_identity_by_the_way_that_pays(task: Task) -> None:
    found: list[str] = []

    def ask(candidate: Candidate) -> float:
        assert candidate.cell is not None
        found.append(str(candidate.cell))
        return str(candidate.cell).count("nor_conv_1x1")

    CellGrowth(task.cells).walk(ask)
    assert found[:4] == [
        "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|",
        "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|nor_conv_3x3~1|none~2|",
        "|nor_conv_1x1~0|+|none~0|none~1|+|skip_connect~0|nor_conv_1x1~1|none~2|",
        "|nor_conv_1x1~0|+|nor_conv_3x3~0|none~1|+|skip_connect~0|nor_conv_1x1~1|nor_conv_3x3~2|",
    ]
    assert (
        found[-1] == "|nor_conv_1x1~0|+|nor_conv_1x1~0|nor_conv_1x1~1|+|skip_connect~0|nor_conv_1x1~1|nor_conv_1x1~2|"
    )
    assert all(CellSpec.parse(cell) for cell in found)


@pytest.mark.parametrize(
    ("guesses", "expected"), [(0, [(4, 0)]), (1, [(4, 0), (4, 1)]), (2, [(4, 0), (4, 1), (4, 2), (8, 0)])]
)
def test_outcomes_that_are_on_their_way_are_guessed_both_ways(
    task: Task, guesses: int, expected: list[tuple[int, int]]
) -> None:
    searcher = Heuristic(task, guesses=guesses)
    proposed: list[tuple[int, int]] = []
    known: dict[str, int] = {}
    while (found := searcher.propose(state(task, known=known, in_flight=len(known)))) is not None:
        known[found.hash] = len(proposed) + 1
        proposed.append(described(found)[1:])
    assert proposed[:3] in (expected[:3], [*expected[:2], *expected[3:]])  # chance decides which guess comes first
    assert sorted(proposed) == expected


def test_after_growth_changes_of_the_best_follow_and_none_twice(cells: Task) -> None:
    searcher = HeuristicSearch(cells, guesses=0)
    searcher.lookahead = 1
    records = train_cells(searcher, 40, lambda operations: operations.count("none") / 10)
    assert {record.status for record in records} == {"ok"}
    assert len({record.candidate.hash for record in records}) == 40
    best = max(records[:20], key=lambda record: record.score)
    assert records[20].candidate.parent == best.candidate.hash


def test_what_is_sure_to_be_refused_is_not_proposed(tight_task: Task) -> None:
    searcher = HeuristicSearch(tight_task)
    drive(searcher, 20)
    assert {record.status for record in searcher.repository.records} == {"ok"}


def test_a_growth_that_waits_for_what_will_never_come_does_something_else(task: Task) -> None:
    searcher = Heuristic(task)
    first = searcher.propose(state(task))
    assert first is not None
    searcher.guesses = 0
    known = {first.hash: 1}  # and no record: its accuracy is not known, and nobody works on it
    assert searcher.propose(state(task, known=known)) is not None
