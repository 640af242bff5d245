"""Puts a run's searcher together: options, engine, journal, gate, budgets."""

from automcu_ray.errors import ConfigError
from automcu_ray.estimate import known_at_start
from automcu_ray.plan import Plan
from automcu_ray.repository import Repository
from automcu_ray.run_folder import RunFolder
from automcu_ray.verdicts import VerdictCache, verdict_folder
from searchers.base import BaseSearcher
from searchers.engine_search import EngineSearch
from searchers.engines.base import Request
from searchers.engines.cassette import CassetteEngine
from searchers.engines.log import LoggedEngine
from searchers.gate import Gate

PROPOSALS_PER_TRAINED = 20


def make_searcher(
    plan: Plan, folder: RunFolder | None, repository: Repository, workers: tuple[str, ...]
) -> BaseSearcher:
    """Return the searcher with its journal, its gate in front of the named toolchain actors, and its budgets.

    Without a folder nothing is written: no log of engine calls, and no toolchain is asked.
    """
    options = dict(plan.searcher_options)
    if plan.engine is not None:
        options["engine"] = plan.engine if folder is None else LoggedEngine(plan.engine, folder.llm / "calls.jsonl")
    searcher: BaseSearcher = plan.make_searcher(plan.task, seed=plan.config.seed, **options)
    searcher.gate = _gate(plan, folder, workers)
    searcher.lookahead = len(workers) + 2
    budget = plan.config.budget
    searcher.trained_budget = budget.trained
    searcher.proposal_budget = budget.proposals or PROPOSALS_PER_TRAINED * budget.trained
    searcher.token_budget, searcher.usd_budget = budget.max_tokens, budget.max_usd
    searcher.replay(repository)
    if not repository.proposed:
        searcher.points_to_evaluate(plan.points)
    return searcher


def _gate(plan: Plan, folder: RunFolder | None, workers: tuple[str, ...]) -> Gate:
    if plan.backend is None or folder is None:
        return Gate(plan.task, foresee=plan.foresee)
    version = f"{plan.backend.name} ({plan.backend.version()})"
    cache = VerdictCache(verdict_folder(), plan.task, version)
    recorded = plan.engine.path.parent if isinstance(plan.engine, CassetteEngine) else None
    estimator = known_at_start(folder.llm, recorded, cache.lessons, plan.task)
    return Gate(plan.task, workers=workers, foresee=plan.foresee, estimator=estimator, cache=cache)


def next_prompts(plan: Plan, folder: RunFolder) -> list[Request]:
    """Return what the searcher would ask its engine next: in a new run, or in the one that `folder` holds.

    Raises:
        ConfigError: the searcher asks no engine.
    """
    searcher = plan.make_searcher(plan.task, seed=plan.config.seed, **plan.searcher_options)
    if not isinstance(searcher, EngineSearch):
        raise ConfigError(f"--show-prompt: searcher {plan.config.searcher.name!r} asks no engine; take --searcher llm.")
    searcher.replay(Repository(folder.journal))
    return searcher.preview()
