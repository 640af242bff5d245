"""Random search keeps the contract for networks and cells, and Genius, which proposes nothing else, for cells."""

import pytest

from automcu_ray.networks.cell_network import Skeleton
from automcu_ray.problem.task import Task
from automcu_ray.testing.searcher_contract import SearcherContract
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import GeniusSearch, RandomSearch
from tests.searchers.conftest import make_task

pytestmark = pytest.mark.thorough

CELLS = {"form": "cell", "skeleton": Skeleton(channels=4, per_stage=1)}


class OfCells(SearcherContract):
    @pytest.fixture
    def task(self) -> Task:
        return make_task().model_copy(update=CELLS)

    @pytest.fixture
    def tight_task(self) -> Task:
        return make_task(ram_kb=2, flash_kb=6).model_copy(update=CELLS)


class TestGenius(OfCells):
    sequential = True

    def make(self, task: Task, seed: int) -> TuneSearcher:
        return GeniusSearch(task, seed=seed)


class TestRandom(SearcherContract):
    def make(self, task: Task, seed: int) -> TuneSearcher:
        return RandomSearch(task, seed=seed)


class TestRandomCells(OfCells, TestRandom):
    pass
