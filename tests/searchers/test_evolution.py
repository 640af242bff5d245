import inspect
from random import Random

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.feasibility import Change, Rung, Violation
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record, TrainingSummary
from automcu_ray.runtime.config import compose
from automcu_ray.testing.searcher_contract import SearcherContract, drive
from searchers.evolution import Evolution
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import EvolutionSearch
from tests.searchers.conftest import refused, state, trained


class TestEvolution(SearcherContract):
    def make(self, task: Task, seed: int) -> TuneSearcher:
        return EvolutionSearch(task, seed=seed, population=3, sample=2, start=2)


def test_chance_fills_the_population_and_then_children_have_living_parents(task: Task) -> None:
    searcher = EvolutionSearch(task, population=3, sample=2, start=3)
    searcher.lookahead = 1
    drive(searcher, 8)
    trained = [record for record in searcher.repository.records if record.status == "ok"]
    parents = [record.candidate.parent for record in trained]
    assert parents[:3] == ["", "", ""] and all(parents[4:])
    assert list(searcher.proposer.living) == trained[-3:]
    for at, record in enumerate(trained[4:], start=4):  # one was proposed before the one before it was known
        assert record.candidate.parent in {other.candidate.hash for other in trained[at - 4 : at]}


def fits(task: Task, number: int, accuracy: float, ram: int, flash: int) -> Record:
    candidate = task.space.sample(Random(number)).replace(number=number)
    return trained(candidate, accuracy, ram_bytes=ram, flash_bytes=flash)


def test_the_best_of_the_sample_is_the_parent_unless_any_of_its_front_may_be(task: Task) -> None:
    handful = [fits(task, 1, 0.9, 90, 90), fits(task, 2, 0.8, 10, 10), fits(task, 3, 0.7, 50, 50)]
    by_accuracy, pareto, rng = Evolution(task), Evolution(task, objective="pareto"), Random(0)
    assert by_accuracy.select(handful, rng) is handful[0]
    chosen = {pareto.select(handful, rng).candidate.number for _ in range(50)}
    assert chosen == {1, 2}  # the third is worse than the second in everything


def test_scalarised_takes_the_one_whose_worst_weighted_share_of_a_bound_is_least(task: Task) -> None:
    searcher, rng = Evolution(task, objective="scalarised", error_bound=0.1, macs_bound=1000), Random(0)
    assert searcher.bounds == {"error": 0.1, "ram": 24 * 1024, "flash": 48 * 1024, "macs": 1000}
    record = fits(task, 1, 0.95, 6 * 1024, 12 * 1024)  # half the error, a quarter of RAM and Flash
    even = dict.fromkeys(searcher.bounds, 1.0)
    assert searcher._worst_share(record, even) == pytest.approx(0.5)
    assert searcher._worst_share(record, even | {"flash": 0.25}) == pytest.approx(1.0)
    awful = fits(task, 2, -5.0, 1, 1)
    assert searcher._worst_share(awful, even) == 10  # capped
    small, accurate = fits(task, 3, 0.9, 1024, 1024), fits(task, 4, 0.99, 24 * 1024, 48 * 1024)
    chosen = {searcher.select([small, accurate], rng).candidate.number for _ in range(100)}
    assert chosen == {3, 4}  # by the draw of the weights


def refusal(task: Task, *changes: Change) -> Record:
    layers = [{"type": "conv", "out_channels": 40}, {"type": "conv", "out_channels": 60}]
    candidate = task.space.candidate(ArchitectureSpec.model_validate({"backbone": layers}))
    about = {"rung": Rung.LINK, "resource": "ram", "message": "x", "found_bytes": 2, "limit_bytes": 1}
    return refused(candidate, *(Violation(**about, fix=change) for change in changes))


def test_a_refused_network_comes_again_as_its_report_says_and_once(task: Task) -> None:
    searcher = Evolution(task, repair=1)
    record = refusal(task, Change(where="layer_2.out_channels", before=60, after=41))
    searcher.observe(record)
    child = searcher.propose(state(task))
    assert child.parent == record.candidate.hash and child.spec is not None
    assert [layer.out_channels for layer in child.spec.backbone] == [40, 41]  # type: ignore[union-attr]
    assert searcher.propose(state(task, known={child.hash: 1})).hash != child.hash


def test_without_repair_a_fix_is_left_alone(task: Task) -> None:
    searcher = Evolution(task, repair=0)
    searcher.observe(refusal(task, Change(where="layer_2.out_channels", before=60, after=41)))
    assert searcher.propose(state(task)).parent == ""


def test_networks_of_others_are_parents_and_generated_code_is_none(task: Task) -> None:
    searcher = Evolution(task, start=1)
    other = fits(task, 1, 0.9, 1, 1)
    code = other.model_copy(update={"candidate": Candidate(code="pass", hash="c")})
    diverged = other.model_copy(update={"training": TrainingSummary(val_accuracy=float("nan"))})
    for record in (code, diverged, other):
        searcher.observe(record)
    assert list(searcher.living) == [other]
    assert searcher.propose(state(task)).parent == other.candidate.hash


def test_without_sizes_the_front_is_the_most_accurate_one(task: Task) -> None:
    """Neither a table nor the analytic backend measures any."""
    handful = [
        fits(task, number, accuracy, 1, 1).model_copy(update={"feasibility": None})
        for number, accuracy in enumerate((0.7, 0.9, 0.8))
    ]
    searcher, rng = Evolution(task, objective="pareto"), Random(0)
    assert {searcher.select(handful, rng).score for _ in range(20)} == {0.9}


def test_a_start_that_is_never_reached_is_refused(task: Task) -> None:
    with pytest.raises(ConfigError, match=r"searcher\.start is 5, but only 3 are kept"):
        Evolution(task, population=3)


def test_its_file_says_what_its_defaults_are(task: Task) -> None:
    options = compose({"searcher": "evolution"}).searcher.options
    defaults = {name: found.default for name, found in inspect.signature(Evolution).parameters.items()}
    assert options == {name: defaults[name] for name in options}
    assert (options["population"], options["sample"], options["start"]) == (10, 5, 5)
