"""Runs a sweep: what is done is read, what was cut short is resumed, the rest is run; results are always written."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from automcu_ray import cluster, supervisor
from automcu_ray.cluster import ray
from automcu_ray.errors import BoardError, EngineError, ToolchainError
from automcu_ray.metrics import metrics, worked_seconds
from automcu_ray.outcomes import Outcome, read_outcome, write_outcome, write_parquet
from automcu_ray.plan import prepare
from automcu_ray.record import Record
from automcu_ray.repository import Repository
from automcu_ray.run_folder import RunFolder, versions
from automcu_ray.screen import say, say_interrupted
from automcu_ray.sweep import Run, Sweep
from automcu_ray.sweep_report import write_page, write_table

_WORTH_RAY = 100  # look-up runs, of a fraction of a second each; Ray takes ten seconds to start


def run_sweep(sweep: Sweep, todo: Sequence[Run], out: Path, console: Console) -> int:
    """Run what is left of a sweep; return the exit status: 0 all is done, 1 a run failed, 130 interrupted.

    Results are written of what is done, whatever ends the sweep.
    """
    folder = out / "runs"
    outcomes = {run.name: done for run in todo if (done := read_outcome(folder, run.name))}
    say(console, f"{sweep.title}: {len(outcomes)} of {len(todo)} runs are done; results: {out}")
    try:
        for outcome in _run_all([run for run in todo if run.name not in outcomes], folder, console):
            write_outcome(folder, outcome)
            outcomes[outcome.name] = outcome
            say(console, f"{len(outcomes)} of {len(todo)}: {_describe(outcome)}")
    except KeyboardInterrupt:
        return say_interrupted(console)
    finally:
        _write(sweep, [outcomes[run.name] for run in todo if run.name in outcomes], out, console)
    return int(len(outcomes) < len(todo))


def _write(sweep: Sweep, found: Sequence[Outcome], out: Path, console: Console) -> None:
    if found:
        write_parquet(out / "results.parquet", found)
        say(console, write_table(out / "table.md", sweep, found))
        write_page(out / "index.html", sweep, found)


def _run_all(todo: Sequence[Run], folder: Path, console: Console) -> Iterator[Outcome]:
    """Yield outcomes as they come: runs one after the other, each with all cores; many look-ups side by side.

    A run whose toolchain, board or engine fails has none, which is said; the others go on.
    """
    kinds = {(run.arm.label, run.case.label): run for run in reversed(todo)}
    on_table = {kind: prepare(run.config).task.on_table for kind, run in kinds.items()}  # what cannot be is known now
    look_ups = [run for run in todo if on_table[run.arm.label, run.case.label]]
    if len(look_ups) >= _WORTH_RAY:
        yield from _side_by_side(look_ups)
        todo = [run for run in todo if not on_table[run.arm.label, run.case.label]]
    for run in todo:
        try:
            with console.status(run.name):
                outcome = _run(run, folder, console)
        except (ToolchainError, BoardError, EngineError) as error:
            say(console, f"{run.name} failed; the same command tries it again. {type(error).__name__}: {error}")
            continue
        yield outcome


def _side_by_side(todo: Sequence[Run]) -> Iterator[Outcome]:
    """Yield the outcomes of look-ups, a process a core; each is what it would be alone."""
    cluster.start(todo[0].config.resources)
    task = ray.remote(num_cpus=1)(_look_up)
    open_: list[Any] = [task.remote(run) for run in todo]
    try:
        while open_:
            done, open_ = ray.wait(open_)
            yield from ray.get(done)
    finally:
        for ref in open_:
            ray.cancel(ref)


def _look_up(run: Run) -> Outcome:
    return _run(run, Path(), Console(quiet=True))


def _run(run: Run, folder: Path, console: Console) -> Outcome:
    home = RunFolder(folder / run.name)
    plan, began_s = prepare(run.config, begun=home.journal.exists()), [time.time()]
    if plan.task.on_table:
        records, manifest = supervisor.look_up_all(plan)
    else:
        cluster.start(plan.config.resources)  # once: what is started here outlives the run
        manifest = supervisor.run(plan, home, console, resumed=home.config.exists())
        repository = Repository(home.journal)
        if (repository.find("searched") or {"interrupted": True})["interrupted"]:
            raise KeyboardInterrupt  # Tune ends in peace: what it left is no outcome
        records = repository.records
        began_s = [row["at_s"] for row in repository.events if row["event"] == "started"]
    limits = {"ram_limit_bytes": plan.task.ram_limit_bytes, "flash_limit_bytes": plan.task.flash_limit_bytes}
    return Outcome(
        arm=run.arm.label,
        case=run.case.label,
        seed=run.seed,
        name=run.name,
        metrics=metrics(records, started_at_s=began_s, **limits),
        seconds=worked_seconds(time.time(), began_s, [record.finished_at_s for record in records]),
        by_rules=plan.engine is not None and not plan.engine.is_language_model,
        versions=versions(),
        **(_of_winner(manifest) if manifest is not None else _of_best(records)),
    )


def _of_winner(manifest: dict[str, Any]) -> dict[str, Any]:
    return {key: manifest.get(key) for key in ("val_accuracy", "test_accuracy", "ram_bytes", "flash_bytes")}


def _of_best(records: list[Record]) -> dict[str, Any]:
    """Return the sizes of the most accurate candidate of a search that had no finalists."""
    top = max((record for record in records if record.scored), key=lambda record: record.accuracy, default=None)
    report = top.feasibility if top is not None else None
    return {} if report is None else report.model_dump(include={"ram_bytes", "flash_bytes"})


def _describe(outcome: Outcome) -> str:
    accuracy, kind = outcome.test_accuracy, "test"
    if accuracy is None:
        accuracy, kind = outcome.metrics.best, "best validation"
    found = "no network" if accuracy is None else f"{kind} accuracy {accuracy:.4f}"
    return f"{outcome.arm} on {outcome.case}, seed {outcome.seed}: {found}, {outcome.seconds:.1f} s"
