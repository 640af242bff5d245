"""Every searcher knows both directions: the most accurate network, or the cheapest that is accurate enough."""

import pytest

from automcu_ray.core.feasibility import FeasibilityReport, Rung, too_slow
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record, best
from automcu_ray.runtime.config import Plugin
from automcu_ray.sizing.footprint import footprint
from automcu_ray.sizing.instruction_model import shipped
from automcu_ray.sizing.size_model import Overhead
from automcu_ray.testing.searcher_contract import drive
from searchers import pick_proposer
from searchers.engines.offline.engine import OfflineEngine
from searchers.gate.gate import Gate
from searchers.stopping import Budget
from searchers.tune_searcher import TuneSearcher

LEARNING = ("evolution", "heuristic", "capacity", "bayesian", "mixed", "llm", "llm_memory")
FAST = ("capacity", "evolution", "llm_memory")
TRIALS = 24


class CountingGate(Gate):
    """Judges as the emulator would, by the analytic estimate, as if that were exact."""

    def _ask_without_tools(self, candidate: Candidate) -> FeasibilityReport | None:
        report = super()._ask_without_tools(candidate)
        if report is None or not report.feasible or candidate.spec is None:
            return report
        graph = self.task.space.graph(candidate.spec)
        sizes = Overhead.guess(graph).on_top_of(footprint(graph, "int8"))
        count, limit = shipped("cortex-m4f").estimate(graph), self.task.instructions_limit
        slow = limit is not None and count > limit
        return report.replace(
            feasible=not slow,
            rung=Rung.EMULATE,
            ram_bytes=sizes.ram_bytes,
            flash_bytes=sizes.flash_bytes,
            instructions=count,
            violations=(too_slow(graph.ops[0].name, count, limit or 0),) if slow else (),
        )


def search(name: str, task: Task) -> list[Record]:
    proposer = pick_proposer(Plugin(name=name), task, seed=0, engine=OfflineEngine())
    searcher = TuneSearcher(
        proposer, gate=CountingGate(task), budget=Budget(trained=TRIALS, proposals=300), lookahead=1
    )
    drive(searcher, TRIALS)
    searcher.close()
    return searcher.repository.records


def cheapest(task: Task, floor: float = 0.9) -> Task:
    return task.replace(objective="instructions", constraints=task.constraints.replace(accuracy=floor))


@pytest.mark.thorough
@pytest.mark.parametrize("name", LEARNING)
def test_the_cheapest_is_cheaper_than_the_most_accurate_and_accurate_enough(name: str, task: Task) -> None:
    top, cheap = best(search(name, task)), best(search(name, cheapest(task)))
    assert top is not None and top.feasibility is not None and cheap is not None and cheap.feasibility is not None
    assert cheap.score > 0 and cheap.accuracy >= 0.7  # the proxy's floor
    assert (cheap.feasibility.instructions or 0) < 0.75 * (top.feasibility.instructions or 0)


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAST)
def test_a_limit_of_instructions_is_kept_and_most_of_what_is_proposed_keeps_it(name: str, task: Task) -> None:
    limited = task.replace(constraints=task.constraints.replace(instructions_m=0.5))
    records = search(name, limited)
    trained = [record for record in records if record.scored]
    assert len(trained) == TRIALS
    assert all(record.feasibility and (record.feasibility.instructions or 0) <= 500_000 for record in trained)
    assert len(trained) > 0.5 * len(records)


def test_capacity_begins_with_small_networks_where_the_cheapest_is_sought(task: Task) -> None:
    def first(goal: Task) -> int:
        proposer = pick_proposer(Plugin(name="capacity"), goal, seed=0)
        searcher = TuneSearcher(proposer, gate=CountingGate(goal), budget=Budget(trained=1))
        drive(searcher, 1)
        (record,) = [one for one in searcher.repository.records if one.scored]
        assert record.feasibility is not None and record.feasibility.instructions is not None
        return record.feasibility.instructions

    assert first(cheapest(task)) < 0.2 * first(task)
