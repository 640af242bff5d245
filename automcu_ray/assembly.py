"""Puts a run's searcher together: options, engine, journal, gate, budgets."""

from ray.tune.search import Searcher

from automcu_ray.errors import ConfigError
from automcu_ray.estimate import known_at_start
from automcu_ray.plan import Plan
from automcu_ray.record import Candidate
from automcu_ray.repository import Repository
from automcu_ray.run_folder import RunFolder
from automcu_ray.verdicts import VerdictCache, verdict_folder
from automcu_ray.warm_start import WARM_START
from searchers import pick_searcher
from searchers.base import BaseSearcher
from searchers.engines.base import Request
from searchers.engines.cassette import CassetteEngine
from searchers.engines.log import LoggedEngine
from searchers.gate import Gate
from searchers.mixed import asking

PROPOSALS_PER_TRAINED = 20


def make_searcher(
    plan: Plan, folder: RunFolder | None, repository: Repository, workers: tuple[str, ...]
) -> BaseSearcher:
    """Return the searcher with its journal, its gate in front of the named toolchain actors, and its budgets.

    Without a folder nothing is written: no log of engine calls, and no toolchain is asked.
    """
    engine = plan.engine
    if engine is not None and folder is not None:
        engine = LoggedEngine(engine, folder.llm / "calls.jsonl")
    searcher = pick_searcher(plan.config.searcher, plan.task, seed=plan.config.seed, engine=engine)
    searcher.gate = _gate(plan, folder, workers)
    searcher.lookahead = len(workers) + 2
    budget = plan.config.budget
    searcher.trained_budget = budget.trained
    searcher.proposal_budget = budget.proposals or PROPOSALS_PER_TRAINED * budget.trained
    searcher.trains_refused = plan.config.gate == "after"
    searcher.token_budget, searcher.usd_budget = budget.max_tokens, budget.max_usd
    searcher.replay(repository)
    if not repository.proposed:
        searcher.points_to_evaluate([*plan.points, *_opening(plan, searcher.gate)])
    return searcher


def _opening(plan: Plan, gate: Gate) -> list[Candidate]:
    """Return what the searcher of `warm_start` proposes, as far as it goes without any result from a toolchain."""
    warm = plan.config.warm_start
    count = warm.points - sum(point.proposer == WARM_START for point in plan.points)
    if warm.searcher is None:
        return []
    opener = pick_searcher(warm.searcher, plan.task, seed=plan.config.seed)
    opener.gate = Gate(plan.task, foresee=plan.foresee, estimator=gate.estimator)
    opener.seen = {point.hash: 0 for point in plan.points}
    opener.proposal_budget = PROPOSALS_PER_TRAINED * warm.points
    while len(opener.live) < count:
        known = opener.next_number
        trial = opener.suggest(f"point_{len(opener.live)}")
        if trial == Searcher.FINISHED or (trial is None and opener.next_number == known):  # it waits for results
            break
    points = [candidate for candidate, _ in opener.live.values()]
    return [point.model_copy(update={"proposer": WARM_START}) for point in points]


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
    searcher = pick_searcher(plan.config.searcher, plan.task, seed=plan.config.seed)
    asker = asking(searcher)
    if asker is None:
        raise ConfigError(f"--show-prompt: searcher {plan.config.searcher.name!r} asks no engine; take --searcher llm.")
    searcher.replay(Repository(folder.journal))
    return asker.preview()
