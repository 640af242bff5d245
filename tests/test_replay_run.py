"""A whole run replayed from its own llm/ folder: two slots, so results come in another order, and the same records."""

from pathlib import Path
from typing import Any

from automcu_ray.repository import Repository
from tests.test_search import start

FLAGS = ("--backend", "analytic", "--set", "trainer.proxy.epochs=2", "--set", "trainer.full.epochs=1")
BUDGET = ("--set", "budget.trained=5", "--set", "budget.finalists=1")
MEASURED = {  # by a clock: all else must be equal
    "finished_at_s": True,
    "cost": {"train_seconds", "toolchain_cpu_seconds"},
    "training": {"seconds", "peak_memory_bytes"},
    "feasibility": {"seconds_by_rung", "cached"},
}


def search(runs: Path, *flags: str) -> str:
    process = start(runs, *FLAGS, *BUDGET, *flags)
    printed = process.communicate(timeout=240)[0]
    assert process.returncode == 0, printed
    return printed


def story(run: Path) -> list[dict[str, Any]]:
    records = sorted(Repository(run / "journal.jsonl").records, key=lambda record: record.candidate.number)
    return [record.model_dump(exclude=MEASURED) for record in records]


def test_a_run_replayed_from_its_calls_has_the_same_records(tmp_path: Path) -> None:
    search(tmp_path, "--name", "one", "--searcher", "llm")
    search(
        tmp_path, "--name", "two", "--searcher", "llm", "--engine", "cassette", "--set", f"engine.path={tmp_path}/one"
    )
    assert story(tmp_path / "one") == story(tmp_path / "two")
    assert sum(row["status"] == "ok" for row in story(tmp_path / "one")) == 5
