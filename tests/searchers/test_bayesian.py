import pickle
from random import Random
from typing import Literal
from unittest.mock import Mock

import pytest

from automcu_ray.cell import CellSpec
from automcu_ray.errors import ConfigError
from automcu_ray.feasibility import FeasibilityReport, Rung, over_limit
from automcu_ray.record import Candidate, Record, TrainingSummary
from automcu_ray.task import Task
from searchers import bayesian
from searchers.base import BaseSearcher
from searchers.bayesian import BayesianSearch
from tests.contracts.searcher_contract import SearcherContract


class TestBayesian(SearcherContract):
    def make(self, task: Task, seed: int) -> BaseSearcher:
        return BayesianSearch(task, seed=seed, startup=2)


class TestGenetic(SearcherContract):
    def make(self, task: Task, seed: int) -> BaseSearcher:
        return BayesianSearch(task, seed=seed, sampler="nsga2", startup=2)


def test_it_comes_to_prefer_what_scores(task: Task) -> None:
    cells = task.model_copy(update={"form": "cell"})
    searcher = BayesianSearch(cells, startup=5)
    searcher.lookahead = 1
    counts = []
    for number in range(40):
        config = searcher.suggest(f"t{number}")
        assert isinstance(config, dict)
        count = CellSpec.model_validate(config["cell"]).operations.count("nor_conv_3x3")
        counts.append(count)
        searcher.on_trial_complete(f"t{number}", {"val_accuracy": 0.1 + count / 10})
    assert sum(counts[-10:]) > 2 * sum(counts[:10])


def record(candidate: Candidate, accuracy: float) -> Record:
    return Record(candidate=candidate, status="ok", training=TrainingSummary(val_accuracy=accuracy))


def test_records_of_other_proposers_teach_and_those_outside_the_space_do_not(task: Task) -> None:
    searcher, rng = BayesianSearch(task), Random(0)
    other = task.space.mutate(task.space.sample(rng), rng)
    searcher.observe(record(other, 0.5))
    assert [(lesson.score, lesson.over) for lesson in searcher.lessons] == [(0.5, 0.0)]
    assert set(searcher.lessons[0].answers) == set(searcher.questions)  # chance answers what was not asked
    foreign = other.spec.model_copy(update={"backbone": other.spec.backbone[:1]}) if other.spec else None
    searcher.observe(record(Candidate(spec=foreign), 1))
    searcher.observe(record(Candidate(code="pass"), 1))
    assert len(searcher.lessons) == 1


def test_a_refusal_teaches_by_how_much_and_ranks_below_everything_that_fits(task: Task) -> None:
    searcher = BayesianSearch(task)
    fits = task.space.sample(Random(1))
    over = over_limit(Rung.LINK, "ram", "layer_1", need=1500, limit=1000)
    report = FeasibilityReport(feasible=False, backend="x", rung=Rung.LINK, violations=(over,))
    searcher.observe(Record(candidate=task.space.sample(Random(2)), status="infeasible", feasibility=report))
    searcher.observe(record(fits, 0.1))
    assert [lesson.over for lesson in searcher.lessons] == [0.5, 0.0]
    study = searcher._informed()
    assert [trial.constraints for trial in study.trials] == [{"over": 0.5}, {"over": 0.0}]
    assert study.best_trial.value == 0.1


@pytest.mark.parametrize(("sampler", "lessons"), [("tpe", 150), ("nsga2", 150), ("nsga2", 155)])
def test_proposals_follow_from_seed_and_records_whatever_was_asked_in_between(
    task: Task, sampler: Literal["tpe", "nsga2"], lessons: int
) -> None:
    """Beyond one term, at the start of a generation and in the middle of one."""
    cells = task.model_copy(update={"form": "cell"})
    asked, fresh = (BayesianSearch(cells, sampler=sampler) for _ in range(2))
    rng = Random(0)
    for number in range(lessons):
        lesson = record(cells.choices.sample(rng), rng.random())
        asked.observe(lesson)
        fresh.observe(lesson)
        if number % 10 == 0:
            asked.propose()
    for seed in range(4):
        asked.rng, fresh.rng = Random(seed), Random(seed)
        assert asked.propose() == pickle.loads(pickle.dumps(fresh)).propose()


def test_generations_of_a_long_run_are_no_deeper_than_pythons_stack(task: Task) -> None:
    cells = task.model_copy(update={"form": "cell"})
    searcher, rng = BayesianSearch(cells, sampler="nsga2", startup=2), Random(0)
    for _ in range(1000):
        searcher.observe(record(cells.choices.sample(rng), rng.random()))
    assert searcher.propose().cell is not None


def test_a_generation_of_one_has_no_two_parents(task: Task) -> None:
    with pytest.raises(ConfigError, match=r"searcher\.startup must be 2 or more with nsga2.*found 1"):
        BayesianSearch(task, sampler="nsga2", startup=1)


def test_a_study_keeps_the_best_and_the_latest_once_there_are_many(task: Task) -> None:
    cells = task.model_copy(update={"form": "cell"})
    searcher, rng = BayesianSearch(cells), Random(0)
    for number in range(300):
        searcher.observe(record(cells.choices.sample(rng), -number / 300))  # the first ones are the best
    values = [round(-300 * (trial.value or 0)) for trial in searcher._informed().trials]
    assert values == [*range(28), *range(156, 300)]  # of 2 * 128 the best 28 and the last 100, and all after those


def test_what_is_kept_of_a_term_is_chosen_once(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = Mock(wraps=bayesian._kept)
    monkeypatch.setattr(bayesian, "_kept", choose)
    cells = task.model_copy(update={"form": "cell"})
    searcher, rng = BayesianSearch(cells), Random(0)
    for number in range(260):
        searcher.observe(record(cells.choices.sample(rng), rng.random()))
        if number % 50 == 0:  # after 1, 51, 101, 151, 201 and 251 lessons
            searcher.propose()
    assert [len(call.args[0]) for call in choose.mock_calls] == [0, 128]
