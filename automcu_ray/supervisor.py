"""The supervisor: wires searchers, trainables and backends together and runs a plan (paper 000, section III-E).

This module and `plan` are the only ones of this folder that import the others.
"""

import time
from typing import Any

from rich.console import Console

from automcu_ray import cluster
from automcu_ray.cluster import ray, tune
from automcu_ray.plan import Plan
from automcu_ray.progress import Progress
from automcu_ray.record import Finalist
from automcu_ray.report import write_report
from automcu_ray.repository import Repository
from automcu_ray.run_folder import RunFolder, host, versions
from automcu_ray.verdicts import VerdictCache, verdict_folder
from backends.actor import Toolchain
from searchers.base import BaseSearcher
from searchers.engines.log import LoggedEngine
from searchers.gate import FeasibilityCallback, Gate
from trainables.exam import examine
from trainables.finalist import FinalistJob
from trainables.finals import run_finalists
from trainables.proxy import ProxyTrainable

PROPOSALS_PER_TRAINED = 20


def run(plan: Plan, folder: RunFolder, console: Console, *, resumed: bool = False) -> dict[str, Any] | None:
    """Run or resume a search to its end; return the winner's manifest, or None where there is no winner (yet).

    What is finished is in the journal when this returns or raises, and the report is written either way.
    """
    folder.create(plan.config)
    repository = Repository(folder.journal)
    engine = plan.engine and {
        "name": plan.engine.name,
        "model": getattr(plan.engine, "model", plan.engine.name),
        "is_language_model": plan.engine.is_language_model,
    }
    repository.append("started", at_s=time.time(), versions=versions(), engine=engine, host=host(), resumed=resumed)
    try:
        return _run(plan, folder, repository, console)
    finally:
        repository.write_parquet(folder.parquet)
        write_report(folder.report, plan.config, plan.task, repository)


def _run(plan: Plan, folder: RunFolder, repository: Repository, console: Console) -> dict[str, Any] | None:
    finished = repository.find("finished")
    if finished is not None:
        manifest: dict[str, Any] = finished["manifest"]
        return manifest
    started_s = time.monotonic()
    with console.status("starting Ray"):
        cluster.start(plan.config.resources)
    try:
        if not _search(plan, folder, repository, console):
            return None
        job, winner = _finals(plan, folder, repository, console)
        if winner is None:
            return None
        repository.append("test_read", hash=winner.hash, images=len(plan.dataset.test))
        spec = repository.proposed[winner.number].spec
        about = {
            "seeds": {"run": plan.config.seed, "winner": winner.training and winner.training.seed},
            "versions": versions(),
            "architecture": spec and spec.compact(),
        }
        with console.status(f"the test set, and the board, for winner #{winner.number}"):
            manifest = examine(
                winner,
                job,
                plan.dataset.test,
                board_images=plan.config.board.images,
                bundle=folder.bundle,
                about=about,
            )
        repository.append("finished", manifest=manifest, seconds=time.monotonic() - started_s)
        return manifest
    finally:
        ray.shutdown()


def _search(plan: Plan, folder: RunFolder, repository: Repository, console: Console) -> bool:
    """Run the trials; return whether the search came to its end, by budget and not by an interrupt."""
    budget, started_s = plan.config.budget, time.monotonic()
    actors = _start_toolchains(plan, folder)  # they live as long as their handles
    searcher = make_searcher(plan, folder, repository, workers=tuple(actors))
    if repository.proposed:
        known = f"{searcher.trained} trained, {len(repository.records)} records, {len(searcher.waiting)} unfinished"
        console.print(f"resumed: {known}", markup=False, highlight=False)
    if searcher.exhausted:
        return True
    slots = cluster.slots(plan.config.resources)
    progress = Progress(searcher, plan.task, console)
    _tuner(plan, folder, searcher, progress, slots).fit()
    progress.close()
    seconds = time.monotonic() - started_s
    ended = searcher.exhausted or (budget.seconds is not None and seconds >= budget.seconds)
    if searcher.gave_up:
        console.print(f"the searcher gave up: {searcher.gave_up}", markup=False, highlight=False)
    share = progress.busy_share(slots)
    repository.append(
        "searched", seconds=seconds, slot_busy_share=share, interrupted=not ended, gave_up=searcher.gave_up
    )
    return ended


def _tuner(plan: Plan, folder: RunFolder, searcher: BaseSearcher, progress: Progress, slots: int) -> tune.Tuner:
    """Return Ray Tune over the proxy trainable; the searcher, not `num_samples`, knows when to stop."""
    config = plan.config
    cpus, gpus = cluster.per_trial(config.resources)
    trainable = tune.with_parameters(
        ProxyTrainable,
        task=plan.task,
        protocol=config.trainer.proxy,
        train_split=plan.dataset.train,
        val_split=plan.dataset.val,
        seed=config.seed,
        threads=max(1, int(cpus)),
    )
    return tune.Tuner(
        tune.with_resources(trainable, {"cpu": cpus, "gpu": gpus}),
        tune_config=tune.TuneConfig(
            num_samples=-1,
            search_alg=searcher,
            max_concurrent_trials=slots,
            reuse_actors=True,
            time_budget_s=config.budget.seconds,
        ),
        run_config=tune.RunConfig(
            name=time.strftime("%Y%m%d-%H%M%S"),
            storage_path=str(folder.tune),
            verbose=0,
            callbacks=[FeasibilityCallback(searcher), progress],
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            failure_config=tune.FailureConfig(max_failures=1),
        ),
    )


def make_searcher(plan: Plan, folder: RunFolder, repository: Repository, workers: tuple[str, ...]) -> BaseSearcher:
    """Return the searcher with its journal, its gate in front of the named toolchain actors, and its budgets."""
    options = dict(plan.searcher_options)
    if plan.engine is not None:
        options["engine"] = LoggedEngine(plan.engine, folder.llm / "calls.jsonl")
    searcher: BaseSearcher = plan.make_searcher(plan.task, seed=plan.config.seed, **options)
    cache = None
    if plan.backend is not None:
        version = f"{plan.backend.name} ({plan.backend.version()})"
        cache = VerdictCache(verdict_folder(), plan.task, version)
    searcher.gate = Gate(plan.task, workers=workers, cache=cache)
    searcher.lookahead = len(workers) + 2
    budget = plan.config.budget
    searcher.trained_budget = budget.trained
    searcher.proposal_budget = budget.proposals or PROPOSALS_PER_TRAINED * budget.trained
    searcher.replay(repository)
    if not repository.proposed:
        searcher.points_to_evaluate(plan.points)
    return searcher


def _finals(
    plan: Plan, folder: RunFolder, repository: Repository, console: Console
) -> tuple[FinalistJob, Finalist | None]:
    """Train the best candidates fully, in parallel; return the winner by validation accuracy."""
    config = plan.config
    cpus, gpus = cluster.per_trial(config.resources)
    toolchain = None
    if plan.backend is not None:
        toolchain = Toolchain(plan.task, config.backend.name, config.backend.options, folder.toolchain)
    job = FinalistJob(
        task=plan.task,
        protocol=config.trainer.full,
        train_split=plan.dataset.train,
        val_split=plan.dataset.val,
        toolchain=toolchain,
        board=plan.board,
        folder=folder.finalists,
        seed=config.seed,
        threads=max(1, int(cpus)),
    )
    done = [_finalist(row) for row in repository.events if row["event"] == "finalist"]
    trained = sorted((r for r in repository.records if r.status == "ok"), key=lambda r: -r.score)
    known = {finalist.hash for finalist in done}
    chosen = [r.candidate for r in trained[: config.budget.finalists] if r.candidate.hash not in known]

    def keep(finalist: Finalist) -> None:
        done.append(finalist)
        repository.append("finalist", **finalist.model_dump(mode="json"))
        outcome = finalist.reason or f"validation accuracy {finalist.training and finalist.training.val_accuracy:.4f}"
        console.print(f"finalist #{finalist.number}: {outcome}", highlight=False, markup=False)

    with console.status("finalists") as status:
        run_finalists(
            chosen, job, cpus=cpus, gpus=gpus, on_result=keep, on_wait=lambda text: status.update(f"finalists: {text}")
        )
    usable = [finalist for finalist in done if finalist.usable]
    return job, max(usable, key=lambda f: f.training.val_accuracy if f.training else 0.0, default=None)


def _start_toolchains(plan: Plan, folder: RunFolder) -> dict[str, Any]:
    """Start the toolchain actors; return their handles by name. They hold no CPU: slots are for training."""
    if plan.backend is None:
        return {}
    backend = plan.config.backend
    names = [
        f"{folder.path.name}-toolchain-{index}" for index in range(cluster.toolchain_workers(plan.config.resources))
    ]
    actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)(Toolchain)
    return {
        name: actor.options(name=name).remote(plan.task, backend.name, backend.options, folder.toolchain)
        for name in names
    }


def _finalist(row: dict[str, Any]) -> Finalist:
    return Finalist.model_validate({key: value for key, value in row.items() if key != "event"})
