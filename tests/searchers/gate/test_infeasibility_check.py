"""Limits within which nothing fits end a search; limits within which something might do not."""

from collections import Counter

import pytest

from automcu_ray.core.feasibility import FeasibilityReport, Rung, over_limit
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.target import Constraints
from automcu_ray.problem.task import Task
from automcu_ray.sizing.footprint import footprint
from searchers.gate.gate import Gate
from searchers.gate.infeasibility_check import PATIENCE, _verdict, smallest
from searchers.random import Random
from searchers.stopping import Budget
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import RandomSearch
from tests.searchers.conftest import refused


class Linker(Gate):
    """A toolchain that adds `overhead` bytes of RAM to the lower bound, one step of the loop later."""

    overhead = 1000

    def submit(self, candidate: Candidate) -> FeasibilityReport | None:
        found = self._ask_without_tools(candidate)
        if found is None or not found.feasible:
            return found
        self.queue.append(candidate)
        return None

    def poll(self) -> list[tuple[Candidate, FeasibilityReport]]:
        asked, limit = list(self.queue), self.task.ram_limit_bytes
        self.queue.clear()
        verdicts = []
        for candidate in asked:
            assert candidate.spec is not None
            least = footprint(self.task.space.graph(candidate.spec), self.task.precision)
            need = least.ram_lower_bound_bytes + self.overhead
            over = (over_limit(Rung.LINK, "ram", "", need, limit),) if need > limit else ()
            sizes = {"ram_bytes": need, "flash_bytes": 100}
            about = {"backend": "x", "rung": Rung.LINK, "violations": over, **sizes}
            verdicts.append((candidate, FeasibilityReport(feasible=not over, **about)))  # type: ignore[arg-type]
        return verdicts


def search(task: Task, gate: type[Gate] = Gate, proposals: int = 2000) -> TuneSearcher:
    """A search that has been asked for trials until it had none left, or one to train."""
    budget = Budget(trained=4, proposals=proposals)
    searcher = TuneSearcher(Random(task, seed=0), gate=gate(task), budget=budget)
    for _ in range(4000):
        if isinstance(searcher.suggest("t"), dict) or searcher.exhausted:
            break
    return searcher


def limited(task: Task, **limits: float) -> Task:
    return task.model_copy(update={"constraints": Constraints.model_validate({"flash_kb": 48, **limits})})


def kinds(candidate: Candidate) -> list[str]:
    assert candidate.spec is not None
    return [layer.type for layer in candidate.spec.backbone]


@pytest.mark.parametrize(
    ("shape", "heads"),
    [
        ((1, 8, 8), {"conv": 3, "avg_pool": 1, "max_pool": 1}),  # a pool of 8 leaves one position
        ((3, 32, 32), {"conv": 2, "avg_pool": 3, "max_pool": 3}),  # a convolution leaves 16, of which a head keeps 8
    ],
)
def test_each_window_is_asked_about_with_every_head_and_with_its_channels_mixed(
    digits_task: Task, shape: tuple[int, int, int], heads: dict[str, int]
) -> None:
    """Three channels into 10 classes are 30 weights, mixed into one 3 + 10; what the code of either takes, none knows.

    A convolution of stride 2 leaves 16 values of 8 x 8; one of stride 1 has no less Flash. Heads pool globally, into
    windows, or not at all.
    """
    found = Counter(tuple(kinds(one)) for one in smallest(digits_task.model_copy(update={"input_shape": shape})))
    assert found == {(first,): count for first, count in heads.items()} | {(first, "pointwise"): 1 for first in heads}


def test_beyond_the_bound_of_the_smallest_a_search_ends_at_once(digits_task: Task) -> None:
    found = search(limited(digits_task, ram_kb=0.07))  # 71 bytes; 64 of the image and 10 of the answer are more
    assert found.exhausted and PATIENCE <= len(found.repository.records) <= PATIENCE + 16
    assert "nothing can fit: even the smallest network needs at least 75 bytes of RAM" in found.gave_up
    assert "the limit is 72; set constraints.ram_kb=1" in found.gave_up


def test_what_the_smallest_needs_once_linked_ends_a_search_too(digits_task: Task) -> None:
    found = search(limited(digits_task, ram_kb=1), Linker)
    assert found.exhausted and len(found.repository.records) < 100
    assert "needs 1,075 bytes of RAM, and the limit is 1,024; set constraints.ram_kb=2" in found.gave_up
    assert not any(record.candidate.proposer == "infeasibility_check" for record in found.repository.records)


def test_what_was_measured_counts_before_a_bound(digits_task: Task) -> None:
    """One is beyond the limit by its bound already; the other one is known once it has been linked."""
    task = limited(digits_task, ram_kb=1)
    answers = [
        refused(Candidate(), over_limit(rung, "ram", "", need, 1024), ram_bytes=linked)
        for rung, need, linked in ((Rung.ANALYTIC, 1100, None), (Rung.LINK, 1300, 1300))
    ]
    assert "even the smallest network needs 1,300 bytes of RAM" in _verdict(task, answers)


def test_where_the_smallest_fits_a_search_goes_on(digits_task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Linker, "overhead", 1024 - 75)  # room for the smallest, and for nothing else
    found = search(limited(digits_task, ram_kb=1), Linker, proposals=40)
    assert not found.gave_up and len(found.repository.records) == 40


def test_a_resumed_search_ends_as_well(digits_task: Task) -> None:
    task = limited(digits_task, ram_kb=0.07)
    first = search(task)
    second = RandomSearch(task, seed=0)
    second.replay(first.repository)
    second.pump()
    assert second.gave_up == first.gave_up
