from automcu_ray.cell import CellSpec
from automcu_ray.record import Candidate, Record, TrainingSummary
from automcu_ray.task import Task
from searchers.base import BaseSearcher
from searchers.bayesian import BayesianSearch
from searchers.evolution import EvolutionSearch
from tests.contracts.searcher_contract import SearcherContract


class TestBayesian(SearcherContract):
    def make(self, task: Task, seed: int) -> BaseSearcher:
        return BayesianSearch(task, seed=seed, startup=2)


class TestGenetic(SearcherContract):
    def make(self, task: Task, seed: int) -> BaseSearcher:
        return BayesianSearch(task, seed=seed, sampler="nsga2")


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


def test_records_of_other_proposers_teach_and_those_outside_the_space_do_not(task: Task) -> None:
    searcher = BayesianSearch(task)
    other = EvolutionSearch(task).task.space.sample(searcher.rng)
    searcher.observe(Record(candidate=other, status="ok", training=TrainingSummary(val_accuracy=0.5)))
    assert [trial.value for trial in searcher.trials] == [0.5]
    foreign = other.spec.model_copy(update={"backbone": other.spec.backbone[:1]}) if other.spec else None
    searcher.observe(Record(candidate=Candidate(spec=foreign), status="ok", training=TrainingSummary(val_accuracy=1)))
    assert len(searcher.trials) == 1
