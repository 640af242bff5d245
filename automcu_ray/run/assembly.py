"""Puts a run's searcher together: options, engine, journal, gate, budgets."""

from ray.tune.search import Searcher

from automcu_ray.core.errors import ConfigError
from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.journal import Repository
from automcu_ray.run.plan import Plan
from automcu_ray.run.warm_start import WARM_START
from automcu_ray.runtime.run_folder import RunFolder
from automcu_ray.sizing.size_model import known_at_start
from automcu_ray.sizing.verdict_cache import VerdictCache, verdict_folder
from searchers import pick_proposer
from searchers.dialogue.llm_proposer import LLMProposer
from searchers.engines.base import Request
from searchers.engines.recording.logging_engine import LoggingEngine
from searchers.engines.recording.replay_engine import ReplayEngine
from searchers.gate.gate import Gate
from searchers.mixed import Mixed
from searchers.shared.conversation import SharedConversation
from searchers.shared.shared_agents import SharedAgents
from searchers.stopping import Budget
from searchers.tune_searcher import TuneSearcher

PROPOSALS_PER_TRAINED = 20


def make_searcher(
    plan: Plan, folder: RunFolder | None, repository: Repository, workers: tuple[str, ...]
) -> TuneSearcher:
    """Return the searcher with its journal, its gate in front of the named toolchain actors, and its budgets.

    Without a folder nothing is written: no log of engine calls, and no toolchain is asked.
    """
    engine, budget = plan.engine, plan.config.budget
    if engine is not None and folder is not None:
        engine = LoggingEngine(engine, folder.llm / "calls.jsonl")
    gate = Gate(plan.task, check_bounds=plan.check_bounds)
    if plan.backend is not None and folder is not None:
        version = f"{plan.backend.name} ({plan.backend.version()})"
        counted_by = "" if plan.board is None else f"{plan.board.name} ({plan.board.version()})"
        cache = VerdictCache(verdict_folder(), plan.task, version, counted_by)
        recorded = plan.engine.path.parent if isinstance(plan.engine, ReplayEngine) else None
        estimator = known_at_start(folder.llm, recorded, cache.lessons, plan.task)
        gate = Gate(plan.task, workers=workers, check_bounds=plan.check_bounds, estimator=estimator, cache=cache)
    supervisor = plan.config.supervisor
    limits = Budget(
        trained=budget.trained,
        proposals=budget.proposals or PROPOSALS_PER_TRAINED * budget.trained,
        tokens=budget.max_tokens,
        usd=budget.max_usd,
        enough=supervisor.enough,
        patience=supervisor.patience,
    )
    if supervisor.agents == "shared":
        assert engine is not None, "the plan has seen to it"
        calls = supervisor.most_calls(budget.trained)
        talk = SharedConversation(plan.task, engine, seed=plan.config.seed, trained=budget.trained, calls=calls)
        tolerance = supervisor.tolerance
        return SharedAgents(talk, repository=repository, gate=gate, budget=limits, calls=calls, tolerance=tolerance)
    searcher = TuneSearcher(
        pick_proposer(plan.config.searcher, plan.task, seed=plan.config.seed, engine=engine),
        repository=repository,
        gate=gate,
        budget=limits,
        lookahead=len(workers) + 2,
        trains_refused=plan.config.gate == "after",
    )
    if not repository.proposed:
        searcher.points_to_evaluate([*plan.points, *_opening(plan, gate)])
    return searcher


def _opening(plan: Plan, gate: Gate) -> list[Candidate]:
    """Return what the searcher of `warm_start` proposes, as far as it goes without any result from a toolchain."""
    warm = plan.config.warm_start
    count = plan.config.warm_points - sum(point.proposer == WARM_START for point in plan.points)
    if warm.searcher is None:
        return []
    opener = TuneSearcher(
        pick_proposer(warm.searcher, plan.task, seed=plan.config.seed),
        gate=Gate(plan.task, check_bounds=plan.check_bounds, estimator=gate.estimator),
        budget=Budget(proposals=PROPOSALS_PER_TRAINED * plan.config.warm_points),
        known={point.hash: 0 for point in plan.points},
    )
    while len(opener.live) < count:
        known = opener.next_number
        trial = opener.suggest(f"point_{len(opener.live)}")
        if trial == Searcher.FINISHED or (trial is None and opener.next_number == known):  # it waits for results
            break
    points = [candidate for candidate, _ in opener.live.values()]
    return [point.replace(proposer=WARM_START) for point in points]


def next_prompts(plan: Plan, folder: RunFolder) -> list[Request]:
    """Return what the searcher would ask its engine next: in a new run, or in the one that `folder` holds.

    Raises:
        ConfigError: the searcher asks no engine.
    """
    proposer = pick_proposer(plan.config.searcher, plan.task, seed=plan.config.seed, engine=plan.engine)
    asker = proposer.asking if isinstance(proposer, Mixed) else proposer
    if not isinstance(asker, LLMProposer):
        raise ConfigError(f"--show-prompt: searcher {plan.config.searcher.name!r} asks no engine; take --searcher llm.")
    TuneSearcher(proposer, repository=Repository(folder.journal))  # learns what the run knows
    return asker.preview()
