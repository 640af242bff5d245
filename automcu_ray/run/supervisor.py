"""The supervisor: wires searchers, trainables and backends together and runs a plan (paper 000, section III-E)."""

import contextlib
import gc
import time

from rich.console import Console

from automcu_ray.core.errors import ConfigError, ToolMissingError
from automcu_ray.core.folder_lock import held
from automcu_ray.records.events import (
    Brought,
    EngineUsed,
    Finished,
    SentenceRead,
    Started,
    TestRead,
)
from automcu_ray.records.journal import Repository
from automcu_ray.records.manifest import Manifest, TableManifest
from automcu_ray.records.record import best
from automcu_ray.reports.console import say
from automcu_ray.reports.live import LiveReport
from automcu_ray.reports.run_report import write_report
from automcu_ray.run.assembly import make_searcher
from automcu_ray.run.decisions import Decisions, at_the_end, made
from automcu_ray.run.final_stage import ship
from automcu_ray.run.plan import Plan
from automcu_ray.run.search_stage import search
from automcu_ray.runtime import cluster
from automcu_ray.runtime.last_words import last_words
from automcu_ray.runtime.run_folder import RunFolder, host, versions
from trainables.datasets.base import Dataset
from trainables.datasets.nasbench201 import Table
from trainables.tabular import drive


def run(
    plan: Plan, folder: RunFolder, console: Console, *, resumed: bool = False, sentence: SentenceRead | None = None
) -> Manifest | None:
    """Run or resume a search to its end; return the winner's manifest, or None where there is no winner (yet).

    `sentence` is how the task came to be, where an engine was asked about it: its cost is the run's.

    What is finished is in the journal when this returns or raises, and the report is written either way.

    Raises:
        ConfigError: the data are not those that the run began with, or another process works on this run.
        ToolMissingError: Ray has died.
    """
    with held(folder.path):
        return _run_alone(plan, folder, console, resumed=resumed, sentence=sentence)


def _run_alone(
    plan: Plan, folder: RunFolder, console: Console, *, resumed: bool, sentence: SentenceRead | None
) -> Manifest | None:
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
    began = Started(at_s=time.time(), resumed=resumed, versions=versions(), engine=engine, host=host(), data=data)
    repository.append(began, *([sentence] if sentence else []))
    report = LiveReport(lambda: write_report(folder.report, plan.config, plan.task, repository))
    unheard = f"error: this run was ended from outside, or by Ray. What is finished is kept: --resume {folder.path}."
    with last_words(unheard):  # to the very end: Ray's C++ may end this process while the report is written
        try:
            return _run(plan, folder, repository, console, report)
        except BaseException:
            if name := cluster.died():  # `until_its_end` has waited for its last sign
                cluster.stop()  # of a sweep's Ray, too
                raise ToolMissingError(
                    f"Ray's {name} has ended before its time: was it killed, or is no memory left? What is finished "
                    f"is kept: go on with --resume {folder.path}."
                ) from None
            raise
        finally:
            repository.write_parquet(folder.parquet)
            report.write()


def _run(
    plan: Plan, folder: RunFolder, repository: Repository, console: Console, report: LiveReport
) -> Manifest | None:
    if finished := repository.last(Finished):
        return finished.manifest
    config, dataset, started_s = plan.config, plan.dataset, time.monotonic()
    for doubt in plan.doubts:
        say(console, doubt)
    with console.status("starting Ray"):
        ours = cluster.start(config.resources)
    with cluster.until_its_end(ours):
        if not search(plan, folder, repository, console, report):
            return None
        if failed := Decisions(repository).of("fail"):
            say(console, failed[-1].reason)
            return None
        if isinstance(dataset, Table):
            return _look_up(dataset, repository)
        if not config.budget.finalists:
            if best(repository.records) is not None:
                end = made("end", "no finalists were asked for: the best of the search is in the report")
                repository.append(end, Finished(manifest=None, seconds=time.monotonic() - started_s))
            return None
        manifests = ship(plan, dataset, folder, repository, console, report)
        winner = manifests.pop("winner", None)
        if winner is not None:
            end, seconds = made("end", "the winner is packaged"), time.monotonic() - started_s
            repository.append(end, Finished(manifest=winner, others=manifests, seconds=seconds))
        return winner


def look_up_all(plan: Plan) -> tuple[Repository, Manifest | None]:
    """Return the journal and the manifest of a run on a table, without Tune and without a folder: milliseconds a trial.

    Searcher, gate and records are those of any run; one candidate at a time.
    """
    assert isinstance(plan.dataset, Table), "there is nothing to look up"
    searcher = make_searcher(plan, None, Repository(), workers=())
    with contextlib.closing(searcher):
        drive(searcher, plan.dataset)
    repository = searcher.repository
    repository.append(*at_the_end(searcher, None))
    return repository, None if Decisions(repository).of("fail") else _look_up(plan.dataset, repository)


def _look_up(table: Table, repository: Repository) -> TableManifest | None:
    """Return the manifest of the best cell, after reading its test accuracy; nothing is trained or built."""
    chosen = {number for decided in Decisions(repository).of("train_fully") for number in decided.numbers}
    top = best([record for record in repository.records if not chosen or record.candidate.number in chosen])
    if top is None or top.candidate.cell is None:
        return None
    number = top.candidate.number
    why = f"the most accurate on validation: winner #{number} ({top.accuracy:.4f})"
    ships = made("ship", why, agent="evaluation", numbers=[number])
    repository.append(ships, TestRead(reader=f"winner {top.candidate.hash}", images=0))
    manifest = TableManifest(
        table=table.name,
        number=number,
        hash=top.candidate.hash,
        architecture=str(top.candidate.cell),
        val_accuracy=top.accuracy,
        test_accuracy=table.test_accuracy(top.candidate.cell),
    )
    repository.append(made("end", "the winner's test accuracy is looked up"), Finished(manifest=manifest))
    return manifest
