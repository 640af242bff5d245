"""The supervisor: wires searchers, trainables and backends together and runs a plan (paper 000, section III-E)."""

import contextlib
import gc
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from automcu_ray.core.errors import ConfigError, ToolMissingError
from automcu_ray.core.folder_lock import held
from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.events import (
    Brought,
    EngineUsed,
    FinalistEvaluated,
    Finished,
    Searched,
    Started,
    TeacherChosen,
    TestRead,
)
from automcu_ray.records.journal import Repository
from automcu_ray.records.manifest import Manifest, NetworkManifest, TableManifest
from automcu_ray.records.record import Finalist, Record, best
from automcu_ray.records.search_dynamics import trend
from automcu_ray.reports.console import say
from automcu_ray.reports.progress import Progress
from automcu_ray.reports.run_report import write_report
from automcu_ray.run import trials
from automcu_ray.run.assembly import make_searcher
from automcu_ray.run.finalists import next_finalists, shipped
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
    if brought := repository.last(Brought):
        raise ConfigError(f"this run deployed {brought.file}, nothing is searched in it: {brought.command}")
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
        with last_words(unheard):
            return _run(plan, folder, repository, console)
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


def _run(plan: Plan, folder: RunFolder, repository: Repository, console: Console) -> Manifest | None:
    if finished := repository.last(Finished):
        return finished.manifest
    config, dataset, started_s = plan.config, plan.dataset, time.monotonic()
    for doubt in plan.doubts:
        say(console, doubt)
    with console.status("starting Ray"):
        ours = cluster.start(config.resources)
    try:
        if not _search(plan, folder, repository, console):
            return None
        if isinstance(dataset, Table):
            return _look_up(dataset, repository)
        if not config.budget.finalists:
            if best(repository.records) is not None:
                repository.append(Finished(manifest=None, seconds=time.monotonic() - started_s))
            return None
        manifests = _ship(plan, dataset, folder, repository, console)
        winner = manifests.pop("winner", None)
        if winner is not None:
            repository.append(Finished(manifest=winner, others=manifests, seconds=time.monotonic() - started_s))
        return winner
    finally:
        if ours:
            cluster.stop()


def _ship(
    plan: Plan, dataset: Dataset, folder: RunFolder, repository: Repository, console: Console
) -> dict[str, Manifest]:
    """Return the manifests of what ships, by name, after training finalists and writing bundles; {} where none is."""
    pipeline, finalists = _train_finalists(plan, dataset, folder, repository, console)
    manifests: dict[str, Manifest] = {}
    seen: dict[str, Manifest] = {}  # by hash: no network reads the test set twice
    for name, finalist in shipped(finalists, plan.task, bundles=plan.config.budget.bundles).items():
        if finalist.hash not in seen:
            bundle = folder.bundle if name == "winner" else folder.path / f"bundle_{name}"
            with console.status(f"the test set, and the board, for {name} #{finalist.number}"):
                seen[finalist.hash] = _evaluate(name, finalist, plan, dataset, pipeline, repository, bundle)
        manifests[name] = seen[finalist.hash]
    return manifests


def _evaluate(
    name: str,
    finalist: Finalist,
    plan: Plan,
    dataset: Dataset,
    pipeline: FinalistPipeline,
    repository: Repository,
    bundle: Path,
) -> NetworkManifest:
    """Return the manifest of a finalist, after reading the test set for it and writing its bundle."""
    network = repository.proposed[finalist.number].trial_config()
    about = {
        "seeds": {"run": plan.config.seed, name: finalist.training and finalist.training.seed},
        "data": dataset.about,
        "classes": dataset.classes,
        "teacher": pipeline.teacher and pipeline.teacher.name,
        "versions": versions(),
        "architecture": next(network[form] for form in ("spec", "cell", "code") if form in network),
    }
    test = dataset.test.open(f"{name} {finalist.hash}", repository)
    images = plan.config.board.images
    return evaluate_on_test(finalist, pipeline, test, board_images=images, bundle=bundle, about=about)


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
            about = (plan.task, backend.name, backend.options, folder.toolchain)
            made = actor.options(name=name).remote(*about, *jail, board=plan.board)
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
    if stopped := searcher.gave_up if searcher.trained < budget.trained else "":
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
) -> tuple[FinalistPipeline, list[Finalist]]:
    """Train the best candidates fully, in parallel; return all finalists."""
    config = plan.config
    done: list[Finalist] = [*repository.all(FinalistEvaluated)]
    trained = sum(record.scored for record in repository.records)
    cpus, gpus = cluster.per_finalist(config.resources, min(trained, config.budget.finalists))
    toolchain, teacher = None, plan.teacher
    if before := repository.last(TeacherChosen):  # of this run, before an interruption
        teacher = Teacher.finalist(repository.proposed[before.number], folder.finalists)
    if plan.backend is not None:
        toolchain = Toolchain(plan.task, config.backend.name, config.backend.options, folder.toolchain, plan.board)
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
        recording=dataset.recording,
    )

    def keep(finalist: Finalist) -> None:
        done.append(finalist)
        repository.append(FinalistEvaluated(**dict(finalist)))
        outcome = finalist.reason or f"validation accuracy {finalist.training and finalist.training.val_accuracy:.4f}"
        say(console, "; ".join(filter(None, [f"finalist #{finalist.number}: {outcome}", finalist.note])))

    def keep_teacher(teacher: Candidate) -> None:
        repository.append(TeacherChosen(number=teacher.number, hash=teacher.hash))
        say(console, f"finalist #{teacher.number} is best in float and teaches")

    wanted = {"count": config.budget.finalists, "bundles": config.budget.bundles}
    with console.status("finalists") as status:
        while chosen := next_finalists(repository.records, done, plan.task, **wanted):
            run_finalists(
                [record.candidate for record in chosen],
                pipeline,
                cpus=cpus,
                gpus=gpus,
                on_result=keep,
                on_teacher=keep_teacher,
                on_wait=lambda text: status.update(f"finalists: {text}"),
            )
    return pipeline, done
