"""Killed and gone on with: at every moment of a candidate's way, the whole run or one of its workers."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.problem.task import Task
from automcu_ray.records.journal import Repository
from backends.programs import missing
from searchers.random import Random
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import RandomSearch
from tests.scripts.test_search import SCRIPT, journal, records, start, trained, wait_until

TRAINED = 3
NO_TOOLS = bool(missing(["arm-none-eabi-gcc"]))
BACKEND = ("--backend", "analytic") if NO_TOOLS else ("--set", "board.mode=none")
FLAGS = ("--searcher", "random", "--name", "run", *BACKEND, "--set", "budget.finalists=1")
SHORT = ("--set", "trainer.proxy.epochs=1", "--set", "trainer.full.epochs=1")
BUDGET = ("--set", f"budget.trained={TRAINED}")

# Runs scripts/search.py and kills itself at the N-th call of a method, before or after what it does.
KILLER = """
import importlib, os, runpy, signal, sys, threading
module, owner, method, when, count, delay_s, script, *flags = sys.argv[1:]
owner = getattr(importlib.import_module(module), owner)
original, calls = getattr(owner, method), []
def die():
    if not float(delay_s): os.kill(os.getpid(), signal.SIGKILL)
    threading.Timer(float(delay_s), os.kill, (os.getpid(), signal.SIGKILL)).start()
def watched(self, *args, **options):
    calls.append(1)
    if when == "before" and len(calls) == int(count): die()
    result = original(self, *args, **options)
    if when == "after" and len(calls) == int(count): die()
    return result
setattr(owner, method, watched)
sys.argv = [script, *flags]
runpy.run_path(script, run_name="__main__")
"""
PROPOSE = ("automcu_ray.records.journal", "Repository", "propose")
SUBMIT = ("searchers.gate.gate", "Gate", "submit")
COMPLETE = ("searchers.tune_searcher", "TuneSearcher", "on_trial_complete")
MOMENTS = {
    "a proposal, before it is written": (*PROPOSE, "before", "3", "0"),
    "a proposal, just written": (*PROPOSE, "after", "3", "0"),
    "a check, just handed to the toolchain": (*SUBMIT, "after", "3", "0"),
    "a check, in the toolchain": (*SUBMIT, "after", "3", "0.3"),
    "a training": (*COMPLETE, "after", "1", "0.2"),
    "a trial's end, before its record": (*COMPLETE, "before", "2", "0"),
    "a trial's record, just written": (*COMPLETE, "after", "2", "0"),
    "the last record, just written": (*COMPLETE, "after", "3", "0"),
}


def test_a_snapshot_of_a_searcher_does_not_copy_its_journal(digits_task: Task, tmp_path: Path) -> None:
    searcher = RandomSearch(digits_task, seed=0)
    searcher.replay(Repository(tmp_path / "journal.jsonl"))
    for trial in ("a", "b"):
        assert isinstance(searcher.suggest(trial), dict)
        searcher.on_trial_complete(trial, {"val_accuracy": 0.5})
    searcher.save(str(tmp_path / "state"))
    state = json.loads((tmp_path / "state").read_text())
    assert (state["records"], state["proposed"]) == ([], [])
    twin = TuneSearcher(Random(digits_task, seed=0), repository=Repository(tmp_path / "journal.jsonl"))
    twin.restore(str(tmp_path / "state"))
    assert twin.trained == 2 and twin.next_number == searcher.next_number


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at(moment: str, tmp_path: Path) -> None:
    """Nothing finished is repeated, nothing proposed is lost, and the budget is met exactly."""
    argv = [sys.executable, "-c", KILLER, *MOMENTS[moment], str(SCRIPT), "--runs", str(tmp_path)]
    environment = {**os.environ, "AUTOMCU_CACHE": str(tmp_path / "cache")}
    killed = subprocess.run([*argv, *FLAGS, *SHORT, *BUDGET], env=environment, timeout=300)
    assert killed.returncode == -signal.SIGKILL
    run = tmp_path / "run"
    before = journal(run)
    output, _ = (resumed := start(tmp_path, "--resume", str(run))).communicate(timeout=300)
    assert resumed.returncode == 0, output
    assert journal(run)[: len(before)] == before
    proposed = proposals(journal(run))
    assert [candidate["number"] for candidate in proposed] == list(range(1, len(proposed) + 1))
    finished = [row["candidate"]["number"] for row in records(run)]
    assert len(set(finished)) == len(finished)
    assert {row["number"] for row in proposals(before)} <= set(finished)  # nothing proposed is lost
    assert len(trained(run)) == len(set(trained(run))) == TRAINED


def proposals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row["candidate"] for row in rows if row["event"] == "proposed"]


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes that a process has started, directly or not."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    yield from found - {pid}


def training(pid: int) -> set[int]:
    """Return the workers of a run that are inside an epoch, as Ray names its processes."""
    found = set()
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{child}/cmdline").read_bytes()
            if name.startswith(b"ray::") and b"Trainable.train" in name:
                found.add(child)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "status"), [(1, "ok"), (2, "failed")])
def test_a_worker_killed_in_an_epoch_costs_one_retry(kills: int, status: str, tmp_path: Path) -> None:
    """The candidate starts anew once, and is counted once; killed again it is a record, and the run goes on."""
    epochs = ("--set", "trainer.proxy.epochs=20", "--set", "trainer.proxy.patience=null", *SHORT[2:])
    one_slot = ("--set", "resources.concurrent_trials=1", "--set", "budget.trained=2")
    process = start(tmp_path, *FLAGS, *epochs, *one_slot)
    run = tmp_path / "run"
    dead: set[int] = set()
    for _ in range(kills):
        wait_until(lambda: bool(training(process.pid) - dead), process)
        assert not records_of_trials(run), "the trial ended before it could be killed"
        for pid in training(process.pid) - dead:
            os.kill(pid, signal.SIGKILL)
            dead.add(pid)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    first = records_of_trials(run)[0]
    assert first["status"] == status
    finished = [row["candidate"]["number"] for row in records(run)]
    assert len(set(finished)) == len(finished)
    assert len(trained(run)) == 2
    if status == "ok":
        assert first["training"]["epochs"] == 20


def records_of_trials(run: Path) -> list[dict[str, Any]]:
    return [row for row in records(run) if row["status"] in ("ok", "failed")]
