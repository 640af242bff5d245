"""The history `R(k)`: an append-only journal, and views of it (paper 000, equation 5)."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from automcu_ray.errors import ConfigError
from automcu_ray.record import Candidate, Record

_LARGEST_BYTES = 1 << 28  # of someone else's journal


class Repository:
    """All that happened in one run: every event is one line of JSON, on disk before the call returns.

    A line that a crash cut short does not count, and goes when the next one is written. Without a path, nothing is kept
    on disk (a searcher used in someone's own script).
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.events: list[dict[str, Any]] = []
        self.records: list[Record] = []
        self.proposed: dict[int, Candidate] = {}
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
        except (OSError, RecursionError) as error:
            raise ConfigError(f"{key}: {journal} cannot be read as a journal: {str(error)[:100]}.") from error

    def propose(self, *candidates: Candidate) -> None:
        """Keep candidates that have been proposed and, perhaps, paid for together: all of them or none."""
        self.proposed.update((candidate.number, candidate) for candidate in candidates)
        dumps = [candidate.model_dump(mode="json", exclude_defaults=True) for candidate in candidates]
        self._write([{"event": "proposed", "candidate": dump} for dump in dumps])

    def add(self, record: Record) -> None:
        """Keep the final outcome of a candidate."""
        self.records.append(record)
        self.append("record", record=record.model_dump(mode="json", exclude_defaults=True))

    def pending(self) -> list[Candidate]:
        """Return the candidates that were proposed and have no record yet, oldest first."""
        done = {record.candidate.number for record in self.records}
        return [candidate for number, candidate in self.proposed.items() if number not in done]

    def find(self, event: str) -> dict[str, Any] | None:
        """Return the newest event of that name."""
        return next((row for row in reversed(self.events) if row["event"] == event), None)

    def append(self, event: str, **payload: Any) -> None:
        """Write one event and wait until the disk has it."""
        row = {"event": event, **payload}
        if event not in ("proposed", "record"):  # those are kept as objects
            self.events.append(row)
        self._write([row])

    def _write(self, rows: Sequence[dict[str, Any]]) -> None:
        if self.path is None:
            return
        with self.path.open("a", encoding="utf-8") as file:
            if self._whole_bytes is not None:  # killed while writing: this line must start a line
                file.truncate(self._whole_bytes)
                self._whole_bytes = None
            file.write("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
            file.flush()
            os.fsync(file.fileno())

    def write_parquet(self, path: Path) -> None:
        """Write one row a record: the columns people filter and plot by."""
        pq.write_table(pa.Table.from_pylist([_row(record) for record in self.records], schema=_SCHEMA), path)

    def _read(self, path: Path) -> None:
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            self._whole_bytes = len(whole)
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                self._replay(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{path} line {number} is not a journal event ({str(error).splitlines()[0]}): "
                    f"restore the file, or start a new run."
                ) from error

    def _replay(self, row: dict[str, Any]) -> None:
        if row["event"] == "proposed":
            candidate = Candidate.model_validate(row["candidate"])
            self.proposed[candidate.number] = candidate
        elif row["event"] == "record":
            self.records.append(Record.model_validate(row["record"]))
        else:
            self.events.append(row)


_SCHEMA = pa.schema(
    [
        ("number", pa.int32()),
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
        ("epochs", pa.int32()),
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


def _row(record: Record) -> dict[str, Any]:
    candidate, report, training = record.candidate, record.feasibility, record.training
    structure = candidate.structure
    flat: dict[str, Any] = {
        **record.cost.model_dump(),
        **(report.model_dump() if report else {}),
        **(training.model_dump() if training else {}),
        **candidate.model_dump(),
        **record.model_dump(include={"status", "reason", "finished_at_s"}),
        "spec": json.dumps(structure.compact()) if structure else None,
        "rung": str(report.rung) if report else None,
    }
    return {name: flat.get(name) for name in _SCHEMA.names}
