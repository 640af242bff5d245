from automcu_ray.feasibility import FeasibilityReport, Rung
from automcu_ray.record import Record, TrainingSummary
from automcu_ray.task import Task
from searchers.base import BaseSearcher
from searchers.evolution import EvolutionSearch
from tests.contracts.searcher_contract import SearcherContract, drive


class TestEvolution(SearcherContract):
    def make(self, task: Task, seed: int) -> BaseSearcher:
        return EvolutionSearch(task, seed=seed, population=3, sample=2)


def test_chance_fills_the_population_and_then_children_have_living_parents(task: Task) -> None:
    searcher = EvolutionSearch(task, population=3, sample=2)
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
