from random import Random

import pytest
from ray.tune.search import Searcher

from automcu_ray.core.feasibility import Rung, over_limit
from automcu_ray.networks.cell_space import CellSpace
from automcu_ray.networks.layouts import Layout, read, usual
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from automcu_ray.testing.searcher_contract import SearcherContract, ask, drive
from searchers.capacity import Capacity
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import CapacitySearch
from tests.searchers.conftest import make_task, refused, state, train_cells

pytestmark = pytest.mark.thorough


class TestCapacity(SearcherContract):
    def make(self, task: Task, seed: int) -> TuneSearcher:
        return CapacitySearch(task, seed=seed, startup=3)


def test_cells_come_by_capacity_and_none_twice(cells: Task) -> None:
    records = train_cells(CapacitySearch(cells, seed=3), 12, lambda operations: 0.5)
    assert [record.candidate.cell for record in records] == CellSpace().by_capacity(Random(3))[:12]
    assert {record.status for record in records} == {"ok"}


def propose_and_train(searcher: TuneSearcher, trials: int) -> list[Record]:
    searcher.lookahead = 1
    drive(searcher, trials)
    return searcher.repository.records


def layout_of(record: Record, task: Task) -> Layout:
    assert record.candidate.spec is not None
    found = read(record.candidate.spec, task.space)
    assert found is not None
    return found[0]


def test_usual_residual_layouts_come_first_families_in_turns_and_full_to_a_limit(task: Task) -> None:
    searcher = CapacitySearch(task, startup=6)
    records = propose_and_train(searcher, 6)
    layouts = [layout_of(record, task) for record in records]
    assert all(layout in usual(task.space, residual=True) for layout in layouts)
    families = {"residual", "mbconv", "bottleneck"}
    assert {layout.family for layout in layouts[:3]} == {layout.family for layout in layouts[3:]} == families
    for layout, record in zip(layouts, records, strict=True):
        width = record.candidate.spec.backbone[0].out_channels  # type: ignore[union-attr]
        widths = searcher.proposer.widths
        wider = widths.candidate(layout, width + 2)  # type: ignore[operator]
        assert wider is not None and wider.spec is not None
        expected = widths.expect(task.space.graph(wider.spec), searcher.prefilter)
        assert expected.exceeds(task.ram_limit_bytes, task.flash_limit_bytes)


def test_after_that_come_neighbours_of_the_best_three_and_no_layout_twice(task: Task) -> None:
    searcher = CapacitySearch(task, startup=4)
    records = propose_and_train(searcher, 20)
    assert len({layout_of(record, task) for record in records}) == 20
    for at, record in enumerate(records[4:9], start=4):
        best = sorted(records[:at], key=lambda one: -one.score)[:3]
        parents = [layout_of(one, task) for one in best if one.candidate.hash == record.candidate.parent]
        assert len(parents) == 1
        assert layout_of(record, task) in parents[0].neighbours()


def test_a_layout_that_was_refused_for_its_bytes_is_asked_again_narrower(task: Task) -> None:
    first, second = Capacity(task), Capacity(task)
    asked = first.propose(state(task))
    assert asked is not None and asked.spec is not None
    found = read(asked.spec, task.space)
    assert found is not None
    violation = over_limit(Rung.LINK, "flash", "", 60_000, 49_152)
    second.observe(refused(asked, violation))
    again = second.propose(state(task, known={asked.hash: 1}))
    assert again is not None and again.spec is not None
    assert read(again.spec, task.space) == (found[0], found[1] - 2)


def test_where_nothing_can_fit_the_smallest_are_asked_and_the_search_ends_and_says_so() -> None:
    searcher = CapacitySearch(make_task(ram_kb=0.06))
    assert ask(searcher, "one") == Searcher.FINISHED
    refused = searcher.repository.records
    assert {record.status for record in refused} == {"infeasible"}
    assert len({record.candidate.hash for record in refused}) == len(refused) <= 40
    assert "nothing can fit" in searcher.gave_up
