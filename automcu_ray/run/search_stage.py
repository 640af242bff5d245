"""The first stage of a run: candidates are proposed, checked and trained until the supervisor ends it."""

import time
from typing import Any

from rich.console import Console

from automcu_ray.records.events import Searched
from automcu_ray.records.journal import Repository
from automcu_ray.records.search_dynamics import trend
from automcu_ray.reports.console import say
from automcu_ray.reports.live import LiveReport
from automcu_ray.reports.progress import Progress
from automcu_ray.run import trials
from automcu_ray.run.assembly import make_searcher
from automcu_ray.run.decisions import Decisions, Reassignment, at_the_end, why_search
from automcu_ray.run.plan import Plan
from automcu_ray.runtime import cluster
from automcu_ray.runtime.cluster import ray
from automcu_ray.runtime.run_folder import RunFolder
from backends.toolchain import Toolchain
from trainables.jail.toolchain import CodeToolchain


def search(plan: Plan, folder: RunFolder, repository: Repository, console: Console, report: LiveReport) -> bool:
    """Run the trials; return whether the search came to its end, by a decision and not by an interrupt."""
    decisions = Decisions(repository)
    if decisions.of("end_search"):
        return True
    budget, started_s = plan.config.budget, time.monotonic()
    actors = _toolchains(plan, folder)
    begun = bool(repository.proposed)
    decisions.make("search", why_search(plan))
    searcher = make_searcher(plan, folder, repository, workers=tuple(actors))
    if begun:
        known = f"{searcher.trained} trained, {len(repository.records)} records, {len(searcher.waiting)} unfinished"
        say(console, f"resumed: {known}")
    searched = repository.last(Searched)
    if searcher.exhausted and searched is not None and not searched.interrupted:
        return True
    progress = Progress(searcher, plan.task, console, report)
    try:
        trials.run(plan, folder.tune, searcher, [progress, Reassignment(searcher, console)])
    finally:
        searcher.close()  # finalists may want the memory that an engine holds
    progress.close()
    seconds = time.monotonic() - started_s
    ended = searcher.exhausted or (budget.seconds is not None and seconds >= budget.seconds)
    if stopped := searcher.early_end.reason or (searcher.gave_up if searcher.trained < budget.trained else ""):
        say(console, f"the search stopped early: {stopped}")
    outcome = Searched(
        seconds=seconds,
        slot_busy_share=progress.busy_share(trials.slots(plan)),
        interrupted=not ended,
        trend=trend(repository.records),
        gave_up=stopped,
    )
    decided = at_the_end(searcher, budget.seconds) if ended else []
    repository.append(*decided, outcome)
    return ended


def _toolchains(plan: Plan, folder: RunFolder) -> dict[str, Any]:
    """Return the actors that check candidates, by name; they live as long as these handles.

    They hold no CPU: slots are for training.
    """
    if plan.backend is None:
        return {}
    toolchain, jail = (CodeToolchain, (plan.config.jail,)) if plan.config.writes_code else (Toolchain, ())
    actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)(toolchain)
    backend = plan.config.backend
    about = (plan.task, backend.name, backend.options, folder.toolchain)
    names = [f"{folder.path.name}-toolchain-{at}" for at in range(cluster.toolchain_workers(plan.config.resources))]
    where = cluster.placement(plan.config.resources, folder.path)  # for its logs
    return {
        name: actor.options(name=name, scheduling_strategy=where).remote(*about, *jail, board=plan.board)
        for name in names
    }
