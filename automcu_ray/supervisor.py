"""The supervisor: wires searchers, trainables and backends together and runs a plan (paper 000, section III-E).

This module, `plan`, `assembly` and `trials` are the only ones of this folder that import the others.
"""

import contextlib
import gc
import time
from typing import Any

from rich.console import Console

from automcu_ray import cluster, trials
from automcu_ray.assembly import make_searcher
from automcu_ray.cluster import ray
from automcu_ray.errors import ConfigError
from automcu_ray.plan import Plan
from automcu_ray.progress import Progress
from automcu_ray.promise import most_promising
from automcu_ray.record import Candidate, Finalist, Record, best
from automcu_ray.report import write_report
from automcu_ray.repository import Repository
from automcu_ray.run_folder import RunFolder, host, versions
from automcu_ray.screen import say
from automcu_ray.trend import trend
from backends.actor import Toolchain
from trainables.code_toolchain import CodeToolchain
from trainables.datasets.base import Dataset
from trainables.datasets.nasbench201 import Table
from trainables.exam import examine
from trainables.finalist import FinalistJob
from trainables.finals import run_finalists
from trainables.table import drive
from trainables.teacher import Teacher


def run(plan: Plan, folder: RunFolder, console: Console, *, resumed: bool = False) -> dict[str, Any] | None:
    """Run or resume a search to its end; return the winner's manifest, or None where there is no winner (yet).

    What is finished is in the journal when this returns or raises, and the report is written either way.

    Raises:
        ConfigError: the data are not those that the run began with.
    """
    data = plan.dataset.about if isinstance(plan.dataset, Dataset) else {}
    repository = Repository(folder.journal)
    if repository.find("finished") is None:
        _check_data(repository, data)
    for backend in plan.backends:
        backend.prepare()
    gc.freeze()  # thousands of modules, never garbage: looking through them halves the speed of the analytic rung
    folder.create(plan.config)
    engine = plan.engine and {
        "name": plan.engine.name,
        "model": plan.engine.model,
        "is_language_model": plan.engine.is_language_model,
    }
    about = {"versions": versions(), "engine": engine, "host": host(), "data": data}
    repository.append("started", at_s=time.time(), resumed=resumed, **about)
    try:
        return _run(plan, folder, repository, console)
    finally:
        repository.write_parquet(folder.parquet)
        write_report(folder.report, plan.config, plan.task, repository)


def _check_data(repository: Repository, data: dict[str, object]) -> None:
    """Refuse to go on with other data: what was learned on those, and what was held back of them, is not of these."""
    began_with = (repository.find("started") or {}).get("data") or data
    if other := [key for key in data if began_with.get(key) != data[key]]:
        wanted, found = (", ".join(f"{key} {about.get(key)}" for key in other) for about in (began_with, data))
        raise ConfigError(
            f"the data set has changed since this run began: wanted {wanted}; found {found}. Put its files back as "
            "they were, or start a new run."
        )


def _run(plan: Plan, folder: RunFolder, repository: Repository, console: Console) -> dict[str, Any] | None:
    finished = repository.find("finished")
    if finished is not None:
        manifest: dict[str, Any] | None = finished["manifest"]
        return manifest
    started_s = time.monotonic()
    for doubt in plan.doubts:
        say(console, doubt)
    with console.status("starting Ray"):
        ours = cluster.start(plan.config.resources)
    try:
        if not _search(plan, folder, repository, console):
            return None
        if isinstance(plan.dataset, Table):
            return _look_up(plan.dataset, repository)
        if not plan.config.budget.finalists:
            if best(repository.records) is not None:
                repository.append("finished", manifest=None, seconds=time.monotonic() - started_s)
            return None
        job, winner = _finals(plan, plan.dataset, folder, repository, console)
        if winner is None:
            return None
        with console.status(f"the test set, and the board, for winner #{winner.number}"):
            manifest = _examined(plan, plan.dataset, winner, job, folder, repository)
        repository.append("finished", manifest=manifest, seconds=time.monotonic() - started_s)
        return manifest
    finally:
        if ours:
            ray.shutdown()


def _examined(
    plan: Plan, dataset: Dataset, winner: Finalist, job: FinalistJob, folder: RunFolder, repository: Repository
) -> dict[str, Any]:
    """Return the winner's manifest, with what the test set says, and leave its bundle."""
    test = dataset.test.open(f"winner {winner.hash}", repository)
    network = repository.proposed[winner.number].trial_config()
    about = {
        "seeds": {"run": plan.config.seed, "winner": winner.training and winner.training.seed},
        "data": dataset.about,
        "teacher": job.teacher and job.teacher.name,
        "versions": versions(),
        "architecture": next(network[form] for form in ("spec", "cell", "code") if form in network),
    }
    images = plan.config.board.images
    return examine(winner, job, test, board_images=images, bundle=folder.bundle, about=about)


def look_up_all(plan: Plan) -> tuple[list[Record], dict[str, Any] | None]:
    """Return the records and the manifest of a run on a table, without Tune and without a folder: milliseconds a trial.

    Searcher, gate and records are those of any run; one candidate at a time.
    """
    assert isinstance(plan.dataset, Table), "there is nothing to look up"
    searcher = make_searcher(plan, None, Repository(), workers=())
    with contextlib.closing(searcher):
        drive(searcher, plan.dataset)
    return searcher.repository.records, _look_up(plan.dataset, searcher.repository)


def _look_up(table: Table, repository: Repository) -> dict[str, Any] | None:
    """Return the manifest of the best cell, after reading its test accuracy; nothing is trained or built."""
    top = best(repository.records)
    if top is None or top.candidate.cell is None:
        return None
    repository.append("test_read", reader=f"winner {top.candidate.hash}", images=0)
    manifest = {
        "table": table.name,
        "number": top.candidate.number,
        "hash": top.candidate.hash,
        "architecture": str(top.candidate.cell),
        "val_accuracy": top.accuracy,
        "test_accuracy": table.test_accuracy(top.candidate.cell),
        "board_agrees": None,
    }
    repository.append("finished", manifest=manifest)
    return manifest


def _search(plan: Plan, folder: RunFolder, repository: Repository, console: Console) -> bool:
    """Run the trials; return whether the search came to its end, by budget and not by an interrupt."""
    budget, started_s = plan.config.budget, time.monotonic()
    actors = _start_toolchains(plan, folder)  # they live as long as their handles
    begun = bool(repository.proposed)
    searcher = make_searcher(plan, folder, repository, workers=tuple(actors))
    if begun:
        known = f"{searcher.trained} trained, {len(repository.records)} records, {len(searcher.waiting)} unfinished"
        say(console, f"resumed: {known}")
    if searcher.exhausted and not (repository.find("searched") or {"interrupted": True})["interrupted"]:
        return True
    progress = Progress(searcher, plan.task, console)
    try:
        trials.run(plan, folder.tune, searcher, progress)
    finally:
        searcher.close()  # finalists may want the memory that an engine holds
    progress.close()
    seconds = time.monotonic() - started_s
    ended = searcher.exhausted or (budget.seconds is not None and seconds >= budget.seconds)
    stopped = (searcher.gave_up or searcher.overspent) if searcher.trained < budget.trained else ""
    if stopped:
        say(console, f"the searcher stopped early: {stopped}")
    share = progress.busy_share(trials.slots(plan))
    about = {"trend": trend(repository.records).model_dump(mode="json"), "gave_up": stopped}
    repository.append("searched", seconds=seconds, slot_busy_share=share, interrupted=not ended, **about)
    return ended


def _finals(
    plan: Plan, dataset: Dataset, folder: RunFolder, repository: Repository, console: Console
) -> tuple[FinalistJob, Finalist | None]:
    """Train the best candidates fully, in parallel; return the winner by validation accuracy."""
    resources = plan.config.resources
    done = [_finalist(row) for row in repository.events if row["event"] == "finalist"]
    promising = most_promising(repository.records)[: plan.config.budget.finalists]
    known = {finalist.hash for finalist in done}
    chosen = [record.candidate for record in promising if record.candidate.hash not in known]
    cpus, gpus = cluster.per_finalist(resources, len(promising))  # the same after an interruption
    job = _finalist_job(plan, dataset, folder, repository, threads=max(1, int(cpus)), gpus=gpus)

    def keep(finalist: Finalist) -> None:
        done.append(finalist)
        repository.append("finalist", **finalist.model_dump(mode="json"))
        outcome = finalist.reason or f"validation accuracy {finalist.training and finalist.training.val_accuracy:.4f}"
        say(console, "; ".join(filter(None, [f"finalist #{finalist.number}: {outcome}", finalist.note])))

    def keep_teacher(teacher: Candidate) -> None:
        repository.append("teacher", number=teacher.number, hash=teacher.hash)
        say(console, f"finalist #{teacher.number} is best in float and teaches")

    with console.status("finalists") as status:

        def wait(text: str) -> None:
            status.update(f"finalists: {text}")

        run_finalists(chosen, job, cpus=cpus, gpus=gpus, on_result=keep, on_teacher=keep_teacher, on_wait=wait)
    usable = [finalist for finalist in done if finalist.usable]
    return job, max(usable, key=lambda f: f.training.val_accuracy if f.training else 0.0, default=None)


def _finalist_job(
    plan: Plan, dataset: Dataset, folder: RunFolder, repository: Repository, *, threads: int, gpus: float
) -> FinalistJob:
    config, toolchain, teacher = plan.config, None, plan.teacher
    if found := repository.find("teacher"):  # of this run, before an interruption
        teacher = Teacher.finalist(repository.proposed[found["number"]], folder.finalists)
    if plan.backend is not None:
        toolchain = Toolchain(plan.task, config.backend.name, config.backend.options, folder.toolchain)
    return FinalistJob(
        task=plan.task,
        protocol=config.trainer.full,
        train_split=dataset.train,
        val_split=dataset.val,
        toolchain=toolchain,
        board=plan.board,
        folder=folder.finalists,
        seed=config.seed,
        threads=threads,
        gpus=gpus,
        jail=config.finalist_jail,
        second_opinions=plan.second_opinions,
        teacher=teacher,
    )


def _start_toolchains(plan: Plan, folder: RunFolder) -> dict[str, Any]:
    """Start the toolchain actors; return their handles by name. They hold no CPU: slots are for training."""
    if plan.backend is None:
        return {}
    backend = plan.config.backend
    names = [
        f"{folder.path.name}-toolchain-{index}" for index in range(cluster.toolchain_workers(plan.config.resources))
    ]
    toolchain, jail = (CodeToolchain, (plan.config.jail,)) if plan.config.writes_code else (Toolchain, ())
    actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)(toolchain)
    return {
        name: actor.options(name=name).remote(plan.task, backend.name, backend.options, folder.toolchain, *jail)
        for name in names
    }


def _finalist(row: dict[str, Any]) -> Finalist:
    return Finalist.model_validate({key: value for key, value in row.items() if key != "event"})
