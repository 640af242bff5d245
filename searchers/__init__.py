"""Proposers as Ray Tune Searchers: one file and one line here each."""

import inspect
from typing import TYPE_CHECKING, Any

from automcu_ray.config import Plugin
from automcu_ray.errors import ConfigError
from automcu_ray.plugins import check_options, load
from automcu_ray.task import Task

if TYPE_CHECKING:  # Ray takes seconds, which a name in a table need not cost
    from searchers.base import BaseSearcher
    from searchers.engines.base import Engine

SEARCHERS = {
    "random": "searchers.random:RandomSearch",
    "evolution": "searchers.evolution:EvolutionSearch",
    "bayesian": "searchers.bayesian:BayesianSearch",
    "capacity": "searchers.capacity:CapacitySearch",
    "mixed": "searchers.mixed:MixedSearch",
    "heuristic": "searchers.heuristic:HeuristicSearch",
    "genius": "searchers.genius:GeniusSearch",
    "llm": "searchers.llm:LLMSearch",
    "llm_memory": "searchers.llm_memory:LLMMemorySearch",
}


def pick_searcher(plugin: Plugin, task: Task, *, seed: int, engine: "Engine | None" = None) -> "BaseSearcher":
    """Return a searcher by name, with its options, for a task; `engine` is for those that ask one.

    Raises:
        ConfigError: no such searcher or option, or it does not propose what the task wants.
    """
    make = load("searcher", SEARCHERS, plugin.name)
    given: dict[str, Any] = {"seed": seed, "engine": engine}
    options = check_options("searcher", plugin.name, make, plugin.options, given=given)
    if task.form not in make.proposes:
        raise ConfigError(
            f"searcher {plugin.name!r} proposes a {' or '.join(make.proposes)}, task {task.dataset!r} wants "
            f"a {task.form}: take another searcher, or another task."
        )
    known = inspect.signature(make).parameters
    searcher: BaseSearcher = make(task, **options, **{key: value for key, value in given.items() if key in known})
    return searcher
