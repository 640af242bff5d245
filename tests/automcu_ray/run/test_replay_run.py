"""A whole run replayed from its own llm/ folder: two slots, so results come in another order, and the same records."""

from pathlib import Path
from typing import Any

import pytest

from automcu_ray.records.journal import Repository
from tests.automcu_ray.run.conftest import Search

SHORT = ("trainer.proxy.epochs=2", "trainer.full.epochs=1", "budget.trained=5", "budget.finalists=1")
TWO_SLOTS = "resources.cpus_per_trial=0.5"
MEASURED = {  # by a clock: all else must be equal
    "finished_at_s": True,
    "cost": {"train_seconds", "toolchain_cpu_seconds"},
    "training": {"seconds", "peak_memory_bytes"},
    "feasibility": {"seconds_by_rung", "cached"},
}
GROUPS = {"backend": "analytic", "searcher": "llm"}


def story(run: Path) -> list[dict[str, Any]]:
    records = sorted(Repository(run / "journal.jsonl").records, key=lambda record: record.candidate.number)
    return [record.model_dump(exclude=MEASURED) for record in records]


@pytest.mark.slow
def test_a_run_replayed_from_its_calls_has_the_same_records(search: Search, tmp_path: Path) -> None:
    search(tmp_path / "one", GROUPS, TWO_SLOTS, *SHORT)
    recorded = f"engine.path={tmp_path}/one"
    search(tmp_path / "two", {**GROUPS, "engine": "cassette"}, TWO_SLOTS, *SHORT, recorded)
    assert story(tmp_path / "one") == story(tmp_path / "two")
    assert sum(row["status"] == "ok" for row in story(tmp_path / "one")) == 5
