"""Each proposer as an ordinary Ray Tune Searcher: `tune.TuneConfig(search_alg=RandomSearch(task))`.

Options are those of the proposer: `LLMMemorySearch(task, seed=1, engine=engine, memory=5)`.
"""

from collections.abc import Callable
from typing import Any

from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.task import Task
from searchers.bayesian import Bayesian
from searchers.capacity import Capacity
from searchers.evolution import Evolution
from searchers.genius import Genius
from searchers.heuristic import Heuristic
from searchers.llm import LLM
from searchers.llm_memory import LLMMemory
from searchers.mixed import Mixed
from searchers.proposer import Proposer
from searchers.random import Random
from searchers.tune_searcher import TuneSearcher


def _searcher(proposer: type[Proposer]) -> Callable[..., TuneSearcher]:
    def init(self: TuneSearcher, task: Task, **options: Any) -> None:
        if not isinstance(task, Task):
            found = f"{type(task).__name__}: {task!r:.80}"
            raise ConfigError(f"task: a Task is wanted, such as automcu_ray.task('digits'), found {found}.")
        TuneSearcher.__init__(self, proposer(task, **options))

    name = f"{proposer.__name__}Search"
    return type(name, (TuneSearcher,), {"__init__": init, "__doc__": proposer.__doc__, "__module__": __name__})


RandomSearch = _searcher(Random)
EvolutionSearch = _searcher(Evolution)
BayesianSearch = _searcher(Bayesian)
CapacitySearch = _searcher(Capacity)
HeuristicSearch = _searcher(Heuristic)
GeniusSearch = _searcher(Genius)
LLMSearch = _searcher(LLM)
LLMMemorySearch = _searcher(LLMMemory)
MixedSearch = _searcher(Mixed)
