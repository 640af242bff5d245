from automcu_ray.task import Task
from searchers.base import BaseSearcher
from searchers.random import RandomSearch
from tests.contracts.searcher_contract import SearcherContract


class TestRandom(SearcherContract):
    def make(self, task: Task, seed: int) -> BaseSearcher:
        return RandomSearch(task, seed=seed)
