"""Runs a sweep: what is done is read, what was cut short is resumed, the rest is run; results are always written."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from automcu_ray.core.errors import BoardError, EngineError, ToolchainError
from automcu_ray.core.folder_lock import held
from automcu_ray.records.events import Searched, Started, ToolCalled
from automcu_ray.records.journal import Repository
from automcu_ray.records.manifest import NetworkManifest
from automcu_ray.records.metrics import metrics, worked_seconds
from automcu_ray.reports.console import say, say_interrupted
from automcu_ray.run import supervisor
from automcu_ray.run.decisions import Decisions
from automcu_ray.run.plan import prepare
from automcu_ray.runtime import cluster, interruption
from automcu_ray.runtime.cluster import ray
from automcu_ray.runtime.run_folder import RunFolder, versions
from automcu_ray.studies.sweep import Run, Sweep
from automcu_ray.studies.sweep_report import write_page, write_table
from automcu_ray.studies.sweep_statistics import RunResult, read_result, write_parquet, write_result

_OF_WINNER = {"val_accuracy", "test_accuracy", "ram_bytes", "flash_bytes"}
_WORTH_RAY = 100  # look-up runs, of a fraction of a second each; Ray takes ten seconds to start


def run_sweep(sweep: Sweep, todo: Sequence[Run], out: Path, console: Console) -> int:
    """Run what is left of a sweep; return the exit status: 0 all is done, 1 a run failed, 130 or 143 interrupted.

    Results are written of what is done, whatever ends the sweep.

    Raises:
        ConfigError: another process works on this sweep.
    """
    with held(out):
        return _run_sweep(sweep, todo, out, console)


def _run_sweep(sweep: Sweep, todo: Sequence[Run], out: Path, console: Console) -> int:
    folder = out / "runs"
    results = {run.name: done for run in todo if (done := read_result(folder, run.name))}
    say(console, f"{sweep.title}: {len(results)} of {len(todo)} runs are done; results: {out}")
    try:
        for result in _run_all([run for run in todo if run.name not in results], folder, console):
            write_result(folder, result)
            results[result.name] = result
            learning, best, kind = result.learning, result.tested, "test"
            if best is None and result.metrics.best is not None:
                best, kind = learning.value_of(result.metrics.best), "best validation"
            value = "no network" if best is None else f"{kind} {learning.metric} {best:.4f}"
            told = f"{result.arm} on {result.case}, seed {result.seed}: {value}, {result.seconds:.1f} s"
            say(console, f"{len(results)} of {len(todo)}: {told}")
    except KeyboardInterrupt:
        return say_interrupted(console)
    finally:
        if found := [results[run.name] for run in todo if run.name in results]:
            write_parquet(out / "results.parquet", found)
            say(console, write_table(out / "table.md", sweep, found))
            write_page(out / "index.html", sweep, found)
    return int(len(results) < len(todo))


def _run_all(todo: Sequence[Run], folder: Path, console: Console) -> Iterator[RunResult]:
    """Yield outcomes as they come: runs one after the other, each with all cores; many look-ups side by side.

    A run whose toolchain, board or engine fails has none, which is said; the others go on.
    """
    kinds = {(run.arm.label, run.case.label): run for run in reversed(todo)}
    on_table = {kind: prepare(run.config).task.on_table for kind, run in kinds.items()}  # what cannot be is known now
    look_ups = [run for run in todo if on_table[run.arm.label, run.case.label]]
    if len(look_ups) >= _WORTH_RAY:
        cluster.start(todo[0].config.resources)  # a process a core; each outcome is what it would be alone
        task = ray.remote(num_cpus=1)(lambda run: _run(run, Path(), Console(quiet=True)))
        open_: list[Any] = [task.remote(run) for run in look_ups]
        try:
            while open_:
                done, open_ = ray.wait(open_)
                yield from ray.get(done)
        finally:
            for ref in open_:
                ray.cancel(ref)
        todo = [run for run in todo if not on_table[run.arm.label, run.case.label]]
    for run in todo:
        try:
            with console.status(run.name):
                result = _run(run, folder, console)
        except (ToolchainError, BoardError, EngineError) as error:
            say(console, f"{run.name} failed; the same command tries it again. {type(error).__name__}: {error}")
            continue
        yield result


def _run(run: Run, folder: Path, console: Console) -> RunResult:
    home = RunFolder(folder / run.name)
    plan, began_s = prepare(run.config, begun=home.journal.exists()), [time.time()]
    if plan.task.on_table:
        interruption.deliver()
        repository, manifest = supervisor.look_up_all(plan)
    else:
        cluster.start(plan.config.resources)  # once: what is started here outlives the run
        manifest = supervisor.run(plan, home, console, resumed=home.config.exists())
        repository = Repository(home.journal)
        searched = repository.last(Searched)
        if searched is None or searched.interrupted:
            raise KeyboardInterrupt  # Tune ends in peace: what it left is no outcome
        began_s = [event.at_s for event in repository.all(Started)]
    records, failed = repository.records, bool(Decisions(repository).of("fail"))
    of_winner: dict[str, Any] = {}
    if manifest is not None:
        of_winner = manifest.model_dump(include=_OF_WINNER)
        if isinstance(manifest, NetworkManifest):
            of_winner["test_value"] = manifest.test_figures.get(plan.task.learning.metric)
    elif not failed and (
        scored := [record for record in records if record.scored]
    ):  # no finalists: the sizes of the best
        report = max(scored, key=lambda record: record.accuracy).feasibility
        of_winner = report.model_dump(include={"ram_bytes", "flash_bytes"}) if report is not None else {}
    limits: dict[str, Any] = {name: getattr(plan.task, name) for name in ("ram_limit_bytes", "flash_limit_bytes")}
    limits["instructions_limit"] = plan.task.instructions_limit
    return RunResult(
        arm=run.arm.label,
        case=run.case.label,
        seed=run.seed,
        name=run.name,
        metrics=metrics(records, started_at_s=began_s, calls=repository.all(ToolCalled), **limits),
        seconds=worked_seconds(time.time(), began_s, [record.finished_at_s for record in records]),
        failed=failed,
        learning=plan.task.learning,
        by_rules=plan.engine is not None and not plan.engine.is_language_model,
        versions=versions(),
        **of_winner,
    )
