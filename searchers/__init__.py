"""Proposers: one file and one line here each. `searchers.tune_searchers` has each as a Ray Tune Searcher."""

import inspect
from typing import TYPE_CHECKING, Any

from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import Plugin
from automcu_ray.runtime.plugins import check_options, load

if TYPE_CHECKING:  # what a name in a table need not cost
    from searchers.engines.base import Engine
    from searchers.proposer import Proposer

SEARCHERS = {
    "random": "searchers.random:Random",
    "evolution": "searchers.evolution:Evolution",
    "bayesian": "searchers.bayesian:Bayesian",
    "capacity": "searchers.capacity:Capacity",
    "mixed": "searchers.mixed:Mixed",
    "heuristic": "searchers.heuristic:Heuristic",
    "genius": "searchers.genius:Genius",
    "llm": "searchers.llm:LLM",
    "llm_memory": "searchers.llm_memory:LLMMemory",
}


def pick_proposer(plugin: Plugin, task: Task, *, seed: int, engine: "Engine | None" = None) -> "Proposer":
    """Return a proposer by name, with its options, for a task; `engine` is for those that ask one.

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
    proposer: Proposer = make(task, **options, **{key: value for key, value in given.items() if key in known})
    return proposer
