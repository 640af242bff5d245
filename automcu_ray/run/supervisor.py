"""The supervisor: wires searchers, trainables and backends together and runs a plan (paper 000, section III-E)."""

import contextlib
import gc
import time
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console

from automcu_ray.core.errors import ConfigError, ToolMissingError
from automcu_ray.core.folder_lock import held
from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.events import (
    EngineUsed,
    FinalistEvaluated,
    Finished,
    Searched,
    Started,
    TeacherChosen,
    TestRead,
)
from automcu_ray.records.finalist_selection import rank_for_finals
from automcu_ray.records.journal import Repository
from automcu_ray.records.manifest import Manifest, TableManifest
from automcu_ray.records.record import Finalist, Record, best
from automcu_ray.records.search_dynamics import trend
from automcu_ray.reports.console import say
from automcu_ray.reports.progress import Progress
from automcu_ray.reports.run_report import write_report
from automcu_ray.run import trials
from automcu_ray.run.assembly import make_searcher
from automcu_ray.run.plan import Plan
from automcu_ray.runtime import cluster
from automcu_ray.runtime.cluster import ray
from automcu_ray.runtime.last_words import last_words
from automcu_ray.runtime.run_folder import RunFolder, host, versions
from backends.toolchain import Toolchain
from trainables.datasets.base import Dataset
from trainables.datasets.nasbench201 import Table
from trainables.finalists.distillation import Teacher
from trainables.finalists.finalist import FinalistPipeline
from trainables.finalists.schedule import run_finalists
from trainables.finalists.test_evaluation import evaluate_on_test
from trainables.jail.toolchain import CodeToolchain
from trainables.tabular import drive


def run(plan: Plan, folder: RunFolder, console: Console, *, resumed: bool = False) -> Manifest | None:
    """Run or resume a search to its end; return the winner's manifest, or None where there is no winner (yet).

    What is finished is in the journal when this returns or raises, and the report is written either way.

    Raises:
        ConfigError: the data are not those that the run began with, or another process works on this run.
        ToolMissingError: Ray has died.
    """
    with held(folder.path):
        return _run_alone(plan, folder, console, resumed=resumed)


def _run_alone(plan: Plan, folder: RunFolder, console: Console, *, resumed: bool) -> Manifest | None:
    data = plan.dataset.about if isinstance(plan.dataset, Dataset) else {}
    repository = Repository(folder.journal)
    started = repository.last(Started)
    began_with = (started.data if started else None) or data
    other = [key for key in data if began_with.get(key) != data[key]]
    if other and repository.last(Finished) is None:  # what was learned on those, or held back of them, is not of these
        wanted, found = (", ".join(f"{key} {about.get(key)}" for key in other) for about in (began_with, data))
        raise ConfigError(
            f"the data set has changed since this run began: wanted {wanted}; found {found}. Put its files back as "
            "they were, or start a new run."
        )
    for backend in plan.backends:
        backend.prepare()
    gc.freeze()  # thousands of modules, never garbage: looking through them halves the speed of the analytic rung
    folder.create(plan.config)
    engine = None
    if asked := plan.engine:
        engine = EngineUsed(name=asked.name, model=asked.model, is_language_model=asked.is_language_model)
    repository.append(
        Started(at_s=time.time(), resumed=resumed, versions=versions(), engine=engine, host=host(), data=data)
    )
    unheard = f"error: this run was ended from outside, or by Ray. What is finished is kept: --resume {folder.path}."
    try:
        with last_words(unheard) as also_end:
            return _run(plan, folder, repository, console, also_end)
    except BaseException as error:
        if name := cluster.died(error):
            cluster.stop()  # of a sweep's Ray, too
            raise ToolMissingError(
                f"Ray's {name} has ended before its time: was it killed, or is no memory left? What is finished is "
                f"kept: go on with --resume {folder.path}."
            ) from None
        raise
    finally:
        repository.write_parquet(folder.parquet)
        write_report(folder.report, plan.config, plan.task, repository)


def _run(
    plan: Plan, folder: RunFolder, repository: Repository, console: Console, also_end: Callable[[Iterable[int]], None]
) -> Manifest | None:
    if finished := repository.last(Finished):
        return finished.manifest
    config, dataset, started_s = plan.config, plan.dataset, time.monotonic()
    for doubt in plan.doubts:
        say(console, doubt)
    with console.status("starting Ray"):
        ours = cluster.start(config.resources)
    also_end(cluster.agents())
    try:
        if not _search(plan, folder, repository, console):
            return None
        if isinstance(dataset, Table):
            return _look_up(dataset, repository)
        if not config.budget.finalists:
            if best(repository.records) is not None:
                repository.append(Finished(manifest=None, seconds=time.monotonic() - started_s))
            return None
        pipeline, winner = _train_finalists(plan, dataset, folder, repository, console)
        if winner is None:
            return None
        with console.status(f"the test set, and the board, for winner #{winner.number}"):
            network = repository.proposed[winner.number].trial_config()
            about = {
                "seeds": {"run": config.seed, "winner": winner.training and winner.training.seed},
                "data": dataset.about,
                "teacher": pipeline.teacher and pipeline.teacher.name,
                "versions": versions(),
                "architecture": next(network[form] for form in ("spec", "cell", "code") if form in network),
            }
            test = dataset.test.open(f"winner {winner.hash}", repository)
            manifest = evaluate_on_test(
                winner, pipeline, test, board_images=config.board.images, bundle=folder.bundle, about=about
            )
        repository.append(Finished(manifest=manifest, seconds=time.monotonic() - started_s))
        return manifest
    finally:
        if ours:
            cluster.stop()


def look_up_all(plan: Plan) -> tuple[list[Record], Manifest | None]:
    """Return the records and the manifest of a run on a table, without Tune and without a folder: milliseconds a trial.

    Searcher, gate and records are those of any run; one candidate at a time.
    """
    assert isinstance(plan.dataset, Table), "there is nothing to look up"
    searcher = make_searcher(plan, None, Repository(), workers=())
    with contextlib.closing(searcher):
        drive(searcher, plan.dataset)
    return searcher.repository.records, _look_up(plan.dataset, searcher.repository)


def _look_up(table: Table, repository: Repository) -> TableManifest | None:
    """Return the manifest of the best cell, after reading its test accuracy; nothing is trained or built."""
    top = best(repository.records)
    if top is None or top.candidate.cell is None:
        return None
    repository.append(TestRead(reader=f"winner {top.candidate.hash}", images=0))
    manifest = TableManifest(
        table=table.name,
        number=top.candidate.number,
        hash=top.candidate.hash,
        architecture=str(top.candidate.cell),
        val_accuracy=top.accuracy,
        test_accuracy=table.test_accuracy(top.candidate.cell),
    )
    repository.append(Finished(manifest=manifest))
    return manifest


def _search(plan: Plan, folder: RunFolder, repository: Repository, console: Console) -> bool:
    """Run the trials; return whether the search came to its end, by budget and not by an interrupt."""
    budget, started_s = plan.config.budget, time.monotonic()
    actors: dict[str, Any] = {}  # they live as long as their handles; they hold no CPU: slots are for training
    if plan.backend is not None:
        toolchain, jail = (CodeToolchain, (plan.config.jail,)) if plan.config.writes_code else (Toolchain, ())
        actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)(toolchain)
        backend = plan.config.backend
        for index in range(cluster.toolchain_workers(plan.config.resources)):
            name = f"{folder.path.name}-toolchain-{index}"
            made = actor.options(name=name).remote(plan.task, backend.name, backend.options, folder.toolchain, *jail)
            actors[name] = made
    begun = bool(repository.proposed)
    searcher = make_searcher(plan, folder, repository, workers=tuple(actors))
    if begun:
        known = f"{searcher.trained} trained, {len(repository.records)} records, {len(searcher.waiting)} unfinished"
        say(console, f"resumed: {known}")
    searched = repository.last(Searched)
    if searcher.exhausted and searched is not None and not searched.interrupted:
        return True
    progress = Progress(searcher, plan.task, console)
    try:
        trials.run(plan, folder.tune, searcher, progress)
    finally:
        searcher.close()  # finalists may want the memory that an engine holds
    progress.close()
    seconds = time.monotonic() - started_s
    ended = searcher.exhausted or (budget.seconds is not None and seconds >= budget.seconds)
    stopped = searcher.gave_up if searcher.trained < budget.trained else ""
    if stopped:
        say(console, f"the searcher stopped early: {stopped}")
    repository.append(
        Searched(
            seconds=seconds,
            slot_busy_share=progress.busy_share(trials.slots(plan)),
            interrupted=not ended,
            trend=trend(repository.records),
            gave_up=stopped,
        )
    )
    return ended


def _train_finalists(
    plan: Plan, dataset: Dataset, folder: RunFolder, repository: Repository, console: Console
) -> tuple[FinalistPipeline, Finalist | None]:
    """Train the best candidates fully, in parallel; return the winner by validation accuracy."""
    config = plan.config
    done: list[Finalist] = [*repository.all(FinalistEvaluated)]
    promising = rank_for_finals(repository.records)[: config.budget.finalists]
    known = {finalist.hash for finalist in done}
    chosen = [record.candidate for record in promising if record.candidate.hash not in known]
    cpus, gpus = cluster.per_finalist(config.resources, len(promising))  # the same after an interruption
    toolchain, teacher = None, plan.teacher
    if before := repository.last(TeacherChosen):  # of this run, before an interruption
        teacher = Teacher.finalist(repository.proposed[before.number], folder.finalists)
    if plan.backend is not None:
        toolchain = Toolchain(plan.task, config.backend.name, config.backend.options, folder.toolchain)
    pipeline = FinalistPipeline(
        task=plan.task,
        protocol=config.trainer.full,
        train_split=dataset.train,
        val_split=dataset.val,
        toolchain=toolchain,
        board=plan.board,
        folder=folder.finalists,
        seed=config.seed,
        threads=max(1, int(cpus)),
        gpus=gpus,
        jail=config.finalist_jail,
        second_opinions=plan.second_opinions,
        teacher=teacher,
    )

    def keep(finalist: Finalist) -> None:
        done.append(finalist)
        repository.append(FinalistEvaluated(**dict(finalist)))
        outcome = finalist.reason or f"validation accuracy {finalist.training and finalist.training.val_accuracy:.4f}"
        say(console, "; ".join(filter(None, [f"finalist #{finalist.number}: {outcome}", finalist.note])))

    def keep_teacher(teacher: Candidate) -> None:
        repository.append(TeacherChosen(number=teacher.number, hash=teacher.hash))
        say(console, f"finalist #{teacher.number} is best in float and teaches")

    with console.status("finalists") as status:
        run_finalists(
            chosen,
            pipeline,
            cpus=cpus,
            gpus=gpus,
            on_result=keep,
            on_teacher=keep_teacher,
            on_wait=lambda text: status.update(f"finalists: {text}"),
        )
    usable = [finalist for finalist in done if finalist.usable]
    return pipeline, max(usable, key=lambda f: f.training.val_accuracy if f.training else 0.0, default=None)
