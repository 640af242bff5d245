import inspect

import pytest

from automcu_ray.config import compose
from automcu_ray.errors import ConfigError
from automcu_ray.feasibility import Change, FeasibilityReport, Rung, Violation
from automcu_ray.record import Candidate, Record, TrainingSummary
from automcu_ray.spec import ArchitectureSpec
from automcu_ray.task import Task
from searchers.base import BaseSearcher
from searchers.evolution import EvolutionSearch
from tests.contracts.searcher_contract import SearcherContract, drive


class TestEvolution(SearcherContract):
    def make(self, task: Task, seed: int) -> BaseSearcher:
        return EvolutionSearch(task, seed=seed, population=3, sample=2, start=2)


def test_chance_fills_the_population_and_then_children_have_living_parents(task: Task) -> None:
    searcher = EvolutionSearch(task, population=3, sample=2, start=3)
    searcher.lookahead = 1
    drive(searcher, 8)
    trained = [record for record in searcher.repository.records if record.status == "ok"]
    parents = [record.candidate.parent for record in trained]
    assert parents[:3] == ["", "", ""] and all(parents[4:])
    assert [record.candidate.hash for record in searcher.living] == [record.candidate.hash for record in trained[-3:]]
    for at, record in enumerate(trained[4:], start=4):  # one was proposed before the one before it was known
        assert record.candidate.parent in {other.candidate.hash for other in trained[at - 4 : at]}


def trained(task: Task, number: int, accuracy: float, ram: int, flash: int) -> Record:
    candidate = task.space.sample(EvolutionSearch(task, seed=number).rng).model_copy(update={"number": number})
    report = FeasibilityReport(feasible=True, backend="x", rung=Rung.LINK, ram_bytes=ram, flash_bytes=flash)
    return Record(candidate=candidate, status="ok", feasibility=report, training=TrainingSummary(val_accuracy=accuracy))


def test_the_best_of_the_sample_is_the_parent_unless_any_of_its_front_may_be(task: Task) -> None:
    handful = [trained(task, 1, 0.9, 90, 90), trained(task, 2, 0.8, 10, 10), trained(task, 3, 0.7, 50, 50)]
    by_accuracy, pareto = EvolutionSearch(task), EvolutionSearch(task, objective="pareto")
    assert by_accuracy._best(handful) is handful[0]
    chosen = {pareto._best(handful).candidate.number for _ in range(50)}
    assert chosen == {1, 2}  # the third is worse than the second in everything


def test_scalarised_takes_the_one_whose_worst_weighted_share_of_a_bound_is_least(task: Task) -> None:
    searcher = EvolutionSearch(task, objective="scalarised", error_bound=0.1, macs_bound=1000)
    assert searcher.bounds == {"error": 0.1, "ram": 24 * 1024, "flash": 48 * 1024, "macs": 1000}
    record = trained(task, 1, 0.95, 6 * 1024, 12 * 1024)  # half the error, a quarter of RAM and Flash
    even = dict.fromkeys(searcher.bounds, 1.0)
    assert searcher._worst_share(record, even) == pytest.approx(0.5)
    assert searcher._worst_share(record, even | {"flash": 0.25}) == pytest.approx(1.0)
    awful = trained(task, 2, -5.0, 1, 1)
    assert searcher._worst_share(awful, even) == 10  # capped
    small, accurate = trained(task, 3, 0.9, 1024, 1024), trained(task, 4, 0.99, 24 * 1024, 48 * 1024)
    chosen = {searcher._best([small, accurate]).candidate.number for _ in range(100)}
    assert chosen == {3, 4}  # by the draw of the weights


def refused(task: Task, *changes: Change) -> Record:
    layers = [{"type": "conv", "out_channels": 40}, {"type": "conv", "out_channels": 60}]
    candidate = task.space.candidate(ArchitectureSpec.model_validate({"backbone": layers}))
    violations = tuple(
        Violation(rung=Rung.LINK, resource="ram", message="x", found_bytes=2, limit_bytes=1, fix=change)
        for change in changes
    )
    report = FeasibilityReport(feasible=False, backend="x", rung=Rung.LINK, violations=violations)
    return Record(candidate=candidate, status="infeasible", reason="x", feasibility=report)


def test_a_refused_network_comes_again_as_its_report_says_and_once(task: Task) -> None:
    searcher = EvolutionSearch(task, repair=1)
    record = refused(task, Change(where="layer_2.out_channels", before=60, after=41))
    searcher.observe(record)
    child = searcher.propose()
    assert child.parent == record.candidate.hash and child.spec is not None
    assert [layer.out_channels for layer in child.spec.backbone] == [40, 41]  # type: ignore[union-attr]
    searcher.seen[child.hash] = 1
    assert searcher.propose().hash != child.hash


def test_without_repair_a_fix_is_left_alone(task: Task) -> None:
    searcher = EvolutionSearch(task, repair=0)
    searcher.observe(refused(task, Change(where="layer_2.out_channels", before=60, after=41)))
    assert searcher.propose().parent == ""


def test_networks_of_others_are_parents_and_generated_code_is_none(task: Task) -> None:
    searcher = EvolutionSearch(task, start=1)
    other = trained(task, 1, 0.9, 1, 1)
    code = other.model_copy(update={"candidate": Candidate(code="pass", hash="c")})
    diverged = other.model_copy(update={"training": TrainingSummary(val_accuracy=float("nan"))})
    for record in (code, diverged, other):
        searcher.observe(record)
    assert list(searcher.living) == [other]
    assert searcher.propose().parent == other.candidate.hash


def test_without_sizes_the_front_is_the_most_accurate_one(task: Task) -> None:
    """Neither a table nor the analytic backend measures any."""
    handful = [
        trained(task, number, accuracy, 1, 1).model_copy(update={"feasibility": None})
        for number, accuracy in enumerate((0.7, 0.9, 0.8))
    ]
    searcher = EvolutionSearch(task, objective="pareto")
    assert {searcher._best(handful).score for _ in range(20)} == {0.9}


def test_a_start_that_is_never_reached_is_refused(task: Task) -> None:
    with pytest.raises(ConfigError, match=r"searcher\.start is 5, but only 3 are kept"):
        EvolutionSearch(task, population=3)


def test_its_file_says_what_its_defaults_are(task: Task) -> None:
    options = compose({"searcher": "evolution"}).searcher.options
    defaults = {name: found.default for name, found in inspect.signature(EvolutionSearch).parameters.items()}
    assert options == {name: defaults[name] for name in options}
    assert (options["population"], options["sample"], options["start"]) == (10, 5, 5)
