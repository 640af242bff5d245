"""The history `R(k)`: an append-only journal, and views of it (paper 000, equation 5)."""

import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from automcu_ray.core.cost import Cost, total
from automcu_ray.core.errors import ConfigError
from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.events import AnyEvent, Event, Proposed, RecordAdded, SentenceRead, ToolCalled
from automcu_ray.records.record import Record

Kind = TypeVar("Kind", bound=Event)
_EVENT: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)
_LARGEST_BYTES = 1 << 28  # of someone else's journal


class Repository:
    """All that happened in one run: every event is one line of JSON, on disk before the call returns.

    Proposals and records are kept as what they hold, by themselves; `events` are all others, oldest first.

    A line that a crash cut short does not count, and goes when the next one is written. Without a path, nothing is kept
    on disk (a searcher used in someone's own script).
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.events: list[AnyEvent] = []
        self.records: list[Record] = []
        self.proposed: dict[int, Candidate] = {}
        self._recorded: set[int] = set()  # numbers of candidates that have a record
        self._whole_bytes: int | None = None  # of a file whose last line is cut
        if path is not None and path.exists():
            self._read(path)

    @classmethod
    def of_run(cls, path: Path, key: str) -> "Repository":
        """Return the journal of someone's run, given its folder or file: a file like any other until it is checked.

        Raises:
            ConfigError: there is none, or it cannot be read; `key` is where the configuration names it.
        """
        journal = path / "journal.jsonl" if path.is_dir() else path
        if not journal.is_file():
            raise ConfigError(f"{key}: no run in {path}: give the folder of a run, like runs/latest.")
        try:
            if journal.stat().st_size > _LARGEST_BYTES:
                raise ConfigError(f"{key}: {journal} has more than {_LARGEST_BYTES >> 20} MB.")
            return cls(journal)
        except OSError as error:
            raise ConfigError(f"{key}: {journal} cannot be read as a journal: {str(error)[:100]}.") from error

    def propose(self, *candidates: Candidate) -> None:
        """Keep candidates that have been proposed and, perhaps, paid for together: all of them or none."""
        self.append(*(Proposed(candidate=candidate) for candidate in candidates))

    def add(self, record: Record) -> None:
        """Keep the final outcome of a candidate."""
        self.append(RecordAdded(record=record))

    def pending(self) -> list[Candidate]:
        """Return the candidates that were proposed and have no record yet, oldest first."""
        done = {record.candidate.number for record in self.records}
        return [candidate for number, candidate in self.proposed.items() if number not in done]

    @property
    def next_number(self) -> int:
        """The number of the next proposal; not all up to it are taken where lines of a journal were lost."""
        return next(number for number in itertools.count(len(self.proposed) + 1) if number not in self.proposed)

    def all(self, kind: type[Kind]) -> list[Kind]:
        """Return the events of a kind, oldest first."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def talked(self) -> Cost:
        """What talk has cost that no candidate carries: calls of shared agents, and the sentence that is the task."""
        return total(event.cost for event in self.events if isinstance(event, ToolCalled | SentenceRead))

    def last(self, kind: type[Kind]) -> Kind | None:
        """Return the newest event of a kind."""
        return next(reversed(self.all(kind)), None)

    def append(self, *events: AnyEvent) -> None:
        """Write events, all or none of them, and wait until the disk has them."""
        if self.path is not None:
            try:
                self._write(self.path, events)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.path)) from error
        for event in events:
            self._keep(event)

    def _write(self, path: Path, events: Sequence[AnyEvent]) -> None:
        lines = []
        for event in events:
            short = isinstance(event, Proposed | RecordAdded)  # what comes a thousand times, without its defaults
            row = {"event": event.event, **event.model_dump(mode="json", exclude_defaults=short)}
            lines.append(json.dumps(row, separators=(",", ":")) + "\n")
        with path.open("ab", buffering=0) as file:
            if self._whole_bytes is not None:  # killed while writing: this line must start a line
                file.truncate(self._whole_bytes)
            self._whole_bytes = file.seek(0, os.SEEK_END)  # where the disk is full, part of a line may be written
            data = "".join(lines).encode()
            while data:
                data = data[file.write(data) :]
            os.fsync(file.fileno())
            self._whole_bytes = None

    def write_parquet(self, path: Path) -> None:
        """Write `table` to a file."""
        pq.write_table(self.table(), path)

    def table(self) -> pa.Table:
        """Return one row a record: the columns people filter and plot by."""
        rows = []
        for record in self.records:
            candidate, report, training = record.candidate, record.feasibility, record.training
            flat: dict[str, Any] = {
                **record.cost.model_dump(),
                **(report.model_dump() if report else {}),
                **(training.model_dump() if training else {}),
                **candidate.model_dump(),
                **record.model_dump(include={"status", "reason", "finished_at_s"}),
                "spec": json.dumps(candidate.structure.compact()) if candidate.structure else None,
                "code": candidate.code,
                "rung": str(report.rung) if report else None,
            }
            rows.append({name: flat.get(name) for name in _SCHEMA.names})
        return pa.Table.from_pylist(rows, schema=_SCHEMA)

    def _read(self, path: Path) -> None:
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            self._whole_bytes = len(whole)
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                self._keep(_EVENT.validate_json(line))
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")[:200]
                raise ConfigError(
                    f"{path} line {number} is not a journal event ({why.splitlines()[0]}): "
                    f"restore the file, or start a new run."
                ) from error

    def _keep(self, event: AnyEvent) -> None:
        if isinstance(event, Proposed):
            self.proposed.setdefault(event.candidate.number, event.candidate)
        elif isinstance(event, RecordAdded):
            number = event.record.candidate.number
            self.proposed.setdefault(number, event.record.candidate)
            if number not in self._recorded:  # else a line that was copied: no candidate has two outcomes
                self._recorded.add(number)
                self.records.append(event.record)
        else:
            self.events.append(event)


_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("hash", pa.string()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("proposer", pa.string()),
        ("parent", pa.string()),
        ("rung", pa.string()),
        ("val_accuracy", pa.float64()),
        ("val_accuracy_float", pa.float64()),
        ("train_loss", pa.float64()),
        ("ranked_by", pa.string()),
        ("ram_bytes", pa.int64()),
        ("flash_bytes", pa.int64()),
        ("parameters", pa.int64()),
        ("macs", pa.int64()),
        ("instructions", pa.int64()),
        ("epochs", pa.int64()),
        ("seed", pa.int64()),
        ("train_seconds", pa.float64()),
        ("toolchain_cpu_seconds", pa.float64()),
        ("prompt_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("usd", pa.float64()),
        ("finished_at_s", pa.float64()),
        ("spec", pa.string()),
        ("code", pa.string()),
    ]
)
