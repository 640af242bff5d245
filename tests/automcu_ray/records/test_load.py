"""Ten thousand candidates through journal, Parquet and report: what is open, running and left behind stays level."""

import gc
import os
import tempfile
import threading
import tracemalloc
from pathlib import Path
from random import Random

import pytest

from automcu_ray.core.feasibility import FeasibilityReport, Rung
from automcu_ray.records.journal import Repository
from automcu_ray.records.record import Record, TrainingSummary
from automcu_ray.reports.run_report import write_report
from automcu_ray.runtime.config import compose
from automcu_ray.testing.tasks import make_task

CANDIDATES, WARM = 10_000, 1_000
BYTES_A_RECORD = 20_000  # of memory, at most


def level() -> tuple[int, int, int]:
    """Return how many files are open, threads alive and temporary files there."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir(tempfile.gettempdir()))


@pytest.mark.slow
def test_ten_thousand_candidates_leave_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    task, rng = make_task(), Random(0)
    fits = FeasibilityReport(feasible=True, backend="c_qemu", rung=Rung.LINK, ram_bytes=9000, flash_bytes=30_000)
    path = tmp_path / "journal.jsonl"
    repository = Repository(path)
    tracemalloc.start()
    for number in range(1, CANDIDATES + 1):
        candidate = task.space.sample(rng).model_copy(update={"number": number})
        repository.propose(candidate)
        training = TrainingSummary(val_accuracy=rng.random(), seconds=1.0)
        repository.add(Record(candidate=candidate, status="ok", feasibility=fits, training=training))
        if number == WARM:
            warm, used = level(), tracemalloc.get_traced_memory()[0]
    a_record = (tracemalloc.get_traced_memory()[0] - used) / (CANDIDATES - WARM)
    tracemalloc.stop()
    assert level() == warm and a_record < BYTES_A_RECORD
    levels = []
    for _ in range(2):  # what libraries open once, for fonts and random numbers, they keep
        again = Repository(path)
        assert again.records == repository.records and not again.pending()
        again.write_parquet(tmp_path / "records.parquet")
        write_report(tmp_path / "report.html", compose({"task": "digits"}), task, again)
        levels.append(level())
    assert again.table().num_rows == CANDIDATES
    assert (tmp_path / "report.html").stat().st_size < 30 << 20
    assert levels[0] == levels[1]
