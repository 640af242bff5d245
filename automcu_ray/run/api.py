"""A search from a notebook or a script: what `automcu search` does, as a function; its outcome, as objects."""

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.task import Task
from automcu_ray.records.events import FinalistEvaluated, Finished
from automcu_ray.records.finalist_selection import rank_for_finals
from automcu_ray.records.journal import Repository
from automcu_ray.records.manifest import Manifest, NetworkManifest
from automcu_ray.records.record import Finalist, Record
from automcu_ray.reports.console import intro
from automcu_ray.run import supervisor
from automcu_ray.run.plan import prepare
from automcu_ray.runtime import interruption
from automcu_ray.runtime.config import RunConfig, compose
from automcu_ray.runtime.run_folder import RunFolder


@dataclass(frozen=True)
class SearchResult:
    """What a search has found so far; `winner` is None where it found nothing, shipped nothing or was interrupted.

    `records` are the outcomes of all candidates, good and bad; `finalists` those trained fully.
    """

    folder: RunFolder
    config: RunConfig
    records: tuple[Record, ...]
    finalists: tuple[Finalist, ...]
    winner: Manifest | None

    @classmethod
    def read(cls, path: Path | str) -> "SearchResult":
        """Return what a run's folder holds, whoever ran it, finished or not.

        Raises:
            ConfigError: there is no run, or its journal cannot be read.
        """
        folder, config = RunFolder.existing(Path(path))
        repository = Repository(folder.journal)
        finalists = {one.hash: one for one in repository.all(FinalistEvaluated)}  # the newest word on each
        finished = repository.last(Finished)
        manifest = finished.manifest if finished else None
        return cls(folder, config, tuple(repository.records), tuple(finalists.values()), manifest)

    @property
    def best(self) -> Record | None:
        """The best record by validation, as finalists are chosen."""
        return next(iter(rank_for_finals(list(self.records))), None)

    @property
    def bundle(self) -> Path | None:
        """The folder of the winner's C, ELF, ONNX, manifest."""
        return self.folder.bundle if isinstance(self.winner, NetworkManifest) else None

    def table(self) -> pa.Table:
        """Return one row a record, the columns of `records.parquet`."""
        return Repository(self.folder.journal).table()

    def to_pandas(self) -> Any:
        """Return `table` as a pandas DataFrame."""
        return self.table().to_pandas()

    def __str__(self) -> str:
        top = self.best
        found = [f"{len(self.records)} records, {sum(record.status == 'ok' for record in self.records)} trained"]
        if top is not None:
            found.append(f"best by validation #{top.candidate.number}: {top.outcome()}")
        if self.winner is not None:
            found.append(f"winner #{self.winner.number}: test {self.winner.told}")
        return "\n".join([*found, f"report: {self.folder.report}"])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def task(
    name: str = "digits",
    *,
    target: str | None = None,
    dataset: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Task:
    """Return a task by the name that `--task` takes; the other arguments change it as flags and `--set` would.

    It is what a searcher of `searchers.tune_searchers` wants in a Tuner of your own.

    Raises:
        ConfigError: an unknown name or key, or a value that cannot be used.
    """
    choices = {"task": name, "target": target, "dataset": dataset}
    return prepare(compose(choices, _settings({"board.mode": "none"} | dict(settings or {})))).task


def search(
    task: str | None = None,
    *,
    target: str | None = None,
    dataset: str | None = None,
    searcher: str | None = None,
    engine: str | None = None,
    backend: str | None = None,
    trainer: str | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    config: RunConfig | None = None,
    resume: Path | str | None = None,
    name: str | None = None,
    runs: Path | str = "runs",
    quiet: bool = False,
) -> SearchResult:
    """Search as `automcu search` does; return what came of it, also where Ctrl-C ended it.

    Args:
        task: a name of `configs/task`, or a YAML file; so are target, searcher, engine, backend and trainer.
        target: the microcontroller.
        dataset: a data set in place of the task's.
        searcher: who proposes.
        engine: what answers a searcher that asks a language model.
        backend: the toolchain.
        trainer: the training protocols.
        seed: of proposals, weights and batches.
        settings: what `--set` takes: {"budget.trained": 8, "constraints.ram": "24KB"}.
        config: everything at once, in place of all the above.
        resume: the folder of a run to go on with, and nothing else.
        name: the run's folder in `runs`; made up if left out.
        runs: the folder that holds the runs.
        quiet: nothing is printed; results are in the result, the journal and the report.

    Raises:
        ConfigError: a name, key, value or file that cannot be used; nothing has been written.
        ToolMissingError: a program that a rung needs is not installed, or Ray has died.
    """
    choices = dict(task=task, target=target, dataset=dataset, searcher=searcher, engine=engine, backend=backend)
    choices["trainer"] = trainer
    changes = [*_settings(settings or {}), *([] if seed is None else [f"seed={seed}"])]
    asked = any(value is not None for value in choices.values()) or bool(changes)
    if resume is not None and (config is not None or asked or name is not None):
        raise ConfigError("resume goes on with the run's own configuration: leave the other arguments out.")
    if config is not None and asked:
        raise ConfigError("config says everything: leave names, seed and settings out, or config.")
    if resume is not None:
        folder, config = RunFolder.existing(Path(resume))
    else:
        config = config or compose(choices, changes)
        folder = RunFolder.new(Path(runs), name, config)
    console = Console(quiet=quiet)
    plan = prepare(config, begun=bool(Repository(folder.journal).proposed))
    intro(console, plan.config, plan.task, plan.engine, folder)
    with interruption.listening():
        try:
            supervisor.run(plan, folder, console, resumed=resume is not None)
        except KeyboardInterrupt:
            console.print(f"stopped before the end; what is finished is kept: go on with resume={str(folder.path)!r}")
    return SearchResult.read(folder.path)


def _settings(settings: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()]
