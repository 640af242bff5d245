"""Runs a sweep: what is done is read, what was cut short is resumed, the rest is run; results are always written."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from automcu_ray import cluster, supervisor
from automcu_ray.metrics import metrics
from automcu_ray.outcomes import Outcome, read_outcome, write_outcome, write_parquet
from automcu_ray.plan import prepare
from automcu_ray.record import Record
from automcu_ray.repository import Repository
from automcu_ray.run_folder import RunFolder, versions
from automcu_ray.screen import say
from automcu_ray.sweep import Run, Sweep
from automcu_ray.sweep_report import write_page, write_table

INTERRUPTED = 130


def run_sweep(sweep: Sweep, todo: Sequence[Run], out: Path, console: Console) -> int:
    """Run what is left of a sweep; return the exit status: 0 all is done, 130 interrupted (what is done is kept)."""
    folder = out / "runs"
    outcomes = {run.name: done for run in todo if (done := read_outcome(folder, run.name))}
    say(console, f"{sweep.title}: {len(outcomes)} of {len(todo)} runs are done; results: {out}")
    status = 0
    try:
        for run in todo:
            if run.name not in outcomes:
                with console.status(f"{len(outcomes) + 1} of {len(todo)}: {run.name}"):
                    outcomes[run.name] = outcome = _run(run, folder, console)
                write_outcome(folder, outcome)
                say(console, f"{len(outcomes)} of {len(todo)}: {_describe(outcome)}")
    except KeyboardInterrupt:
        say(console, "stopped before the end; what is finished is kept. The same command goes on.")
        status = INTERRUPTED
    found = [outcomes[run.name] for run in todo if run.name in outcomes]
    if found:
        write_parquet(out / "results.parquet", found)
        say(console, write_table(out / "table.md", sweep, found))
        write_page(out / "index.html", sweep, found)
    return status


def _run(run: Run, folder: Path, console: Console) -> Outcome:
    started_s = time.monotonic()
    plan = prepare(run.config)
    records: list[Record]
    if plan.on_table:
        records, manifest = supervisor.look_up_all(plan)
    else:
        cluster.start(plan.config.resources)  # once: what is started here outlives the run
        home = RunFolder(folder / run.name)
        manifest = supervisor.run(plan, home, console, resumed=home.config.exists())
        records = Repository(home.journal).records
    winner: dict[str, Any] = manifest or {}
    limits = {"ram_limit_bytes": plan.task.ram_limit_bytes, "flash_limit_bytes": plan.task.flash_limit_bytes}
    return Outcome(
        arm=run.arm.label,
        case=run.case.label,
        seed=run.seed,
        name=run.name,
        metrics=metrics(records, **limits),
        seconds=time.monotonic() - started_s,
        versions=versions(),
        **{key: winner.get(key) for key in ("val_accuracy", "test_accuracy", "ram_bytes", "flash_bytes")},
    )


def _describe(outcome: Outcome) -> str:
    test = "no winner" if outcome.test_accuracy is None else f"test accuracy {outcome.test_accuracy:.4f}"
    return f"{outcome.arm} on {outcome.case}, seed {outcome.seed}: {test}, {outcome.seconds:.1f} s"
