import pickle
from random import Random
from typing import Literal
from unittest.mock import Mock

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.feasibility import Rung, over_limit
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.testing.searcher_contract import SearcherContract
from searchers import bayesian
from searchers.bayesian import Bayesian
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import BayesianSearch
from tests.searchers.conftest import refused, state, train_cells, trained

pytestmark = pytest.mark.thorough


class TestBayesian(SearcherContract):
    def make(self, task: Task, seed: int) -> TuneSearcher:
        return BayesianSearch(task, seed=seed, startup=2)


class TestGenetic(SearcherContract):
    def make(self, task: Task, seed: int) -> TuneSearcher:
        return BayesianSearch(task, seed=seed, sampler="nsga2", startup=2)


def test_it_comes_to_prefer_what_scores(cells: Task) -> None:
    searcher = BayesianSearch(cells, startup=5)
    searcher.lookahead = 1
    records = train_cells(searcher, 40, lambda operations: 0.1 + operations.count("nor_conv_3x3") / 10)
    counts = [record.candidate.cell.operations.count("nor_conv_3x3") for record in records if record.candidate.cell]
    assert sum(counts[-10:]) > 2 * sum(counts[:10])


def test_records_of_other_proposers_teach_and_those_outside_the_space_do_not(task: Task) -> None:
    searcher, rng = Bayesian(task), Random(0)
    other = task.space.mutate(task.space.sample(rng), rng)
    searcher.observe(trained(other, 0.5))
    assert [(lesson.score, lesson.over) for lesson in searcher.lessons] == [(0.5, 0.0)]
    assert set(searcher.lessons[0].answers) == set(searcher.questions)  # chance answers what was not asked
    foreign = other.spec.model_copy(update={"backbone": other.spec.backbone[:1]}) if other.spec else None
    searcher.observe(trained(Candidate(spec=foreign), 1))
    searcher.observe(trained(Candidate(code="pass"), 1))
    assert len(searcher.lessons) == 1


def test_a_refusal_teaches_by_how_much_and_ranks_below_everything_that_fits(task: Task) -> None:
    searcher = Bayesian(task)
    fits = task.space.sample(Random(1))
    over = over_limit(Rung.LINK, "ram", "layer_1", need=1500, limit=1000)
    searcher.observe(refused(task.space.sample(Random(2)), over))
    searcher.observe(trained(fits, 0.1))
    assert [lesson.over for lesson in searcher.lessons] == [0.5, 0.0]
    study = searcher._informed()
    assert [trial.constraints for trial in study.trials] == [{"over": 0.5}, {"over": 0.0}]
    assert study.best_trial.value == 0.1


@pytest.mark.parametrize(("sampler", "lessons"), [("tpe", 150), ("nsga2", 150), ("nsga2", 155)])
def test_proposals_follow_from_seed_and_records_whatever_was_asked_in_between(
    cells: Task, sampler: Literal["tpe", "nsga2"], lessons: int
) -> None:
    """Beyond one term, at the start of a generation and in the middle of one."""
    asked, fresh = (Bayesian(cells, sampler=sampler) for _ in range(2))
    rng = Random(0)
    for number in range(lessons):
        lesson = trained(cells.choices.sample(rng), rng.random())
        asked.observe(lesson)
        fresh.observe(lesson)
        if number % 10 == 0:
            asked.propose(state(cells))
    for seed in range(4):
        again = pickle.loads(pickle.dumps(fresh))
        assert asked.propose(state(cells, seed=seed)) == again.propose(state(cells, seed=seed))


def test_generations_of_a_long_run_are_no_deeper_than_pythons_stack(cells: Task) -> None:
    searcher, rng = Bayesian(cells, sampler="nsga2", startup=2), Random(0)
    for _ in range(1000):
        searcher.observe(trained(cells.choices.sample(rng), rng.random()))
    assert searcher.propose(state(cells)).cell is not None


def test_a_generation_of_one_has_no_two_parents(task: Task) -> None:
    with pytest.raises(ConfigError, match=r"searcher\.startup must be 2 or more with nsga2.*found 1"):
        Bayesian(task, sampler="nsga2", startup=1)


def test_a_study_keeps_the_best_and_the_latest_once_there_are_many(cells: Task) -> None:
    searcher, rng = Bayesian(cells), Random(0)
    for number in range(300):
        searcher.observe(trained(cells.choices.sample(rng), -number / 300))  # the first ones are the best
    values = [round(-300 * (trial.value or 0)) for trial in searcher._informed().trials]
    assert values == [*range(28), *range(156, 300)]  # of 2 * 128 the best 28 and the last 100, and all after those


def test_what_is_kept_of_a_term_is_chosen_once(cells: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = Mock(wraps=bayesian._kept)
    monkeypatch.setattr(bayesian, "_kept", choose)
    searcher, rng = Bayesian(cells), Random(0)
    for number in range(260):
        searcher.observe(trained(cells.choices.sample(rng), rng.random()))
        if number % 50 == 0:  # after 1, 51, 101, 151, 201 and 251 lessons
            searcher.propose(state(cells))
    assert [len(call.args[0]) for call in choose.mock_calls] == [0, 128]
