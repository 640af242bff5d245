"""A cluster of two nodes on one machine: work runs on both, and a node that is killed costs its trials one retry."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.records.events import Decided, Finished
from automcu_ray.records.journal import Repository
from tests.automcu_ray.run.test_restore import BACKEND
from tests.faults.processes import everyone
from tests.scripts.test_search import SCRIPT

TRAINED = 6
LONGEST_S = 400


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head with one CPU, where nothing of this project lies on any path, and a second node with another."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        yield cluster
    finally:
        cluster.shutdown()


def raylets(cluster: Any) -> list[int]:
    """The process of each node's raylet, the head's first."""
    return [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]


def trials_of(raylet: int) -> list[int]:
    return [one.pid for one in everyone() if one.parent == raylet and one.title.startswith("ray::ResourceTrainable")]


def paths_of(pid: int) -> str:
    with contextlib.suppress(OSError):  # it ended meanwhile
        found = dict(line.partition(b"=")[::2] for line in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
        return found.get(b"PYTHONPATH", b"").decode()
    return ""


@pytest.mark.slow
def test_trials_run_on_both_nodes_and_a_killed_node_costs_its_trials_one_retry(two_nodes: Any, tmp_path: Path) -> None:
    away = tmp_path / "elsewhere"
    away.mkdir()
    short = ("trainer.full.epochs=1", "trainer.full.qat_epochs=0", "budget.finalists=1", f"budget.trained={TRAINED}")
    flags = ("--searcher", "random", *BACKEND, "--name", "run", "--runs", str(tmp_path), "--address", two_nodes.address)
    command = [sys.executable, str(SCRIPT), *flags, *(word for one in short for word in ("--set", one))]
    job = {"runtime_env": {"env_vars": {"SUBMITTED": "1", "RAY_CHDIR_TO_TRIAL_DIR": "1"}}, "metadata": {}}
    environment = {
        **os.environ,
        "AUTOMCU_CACHE": str(tmp_path / "cache"),
        "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(job),
    }
    head, second = raylets(two_nodes)
    seen: dict[int, set[int]] = {head: set(), second: set()}
    journal, paths, killed = tmp_path / "run" / "journal.jsonl", set(), False
    with (tmp_path / "output.txt").open("w") as output:
        process = subprocess.Popen(command, cwd=away, env=environment, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + LONGEST_S
        while process.poll() is None and time.monotonic() < deadline:
            for raylet, pids in seen.items():
                pids.update(trials_of(raylet))
                paths.update(map(paths_of, pids))
            scored = journal.exists() and sum('"status":"ok"' in line for line in journal.read_text().splitlines())
            if not killed and scored and all(seen.values()) and trials_of(second):
                two_nodes.remove_node(two_nodes.list_all_nodes()[1], allow_graceful=False)
                killed = True
            time.sleep(0.3)
        process.kill()
    said = (tmp_path / "output.txt").read_text()
    assert killed and process.returncode == 0, said
    assert any("_ray_pkg_" in path for path in paths), "workers have the code that the driver sent"
    repository = Repository(journal)
    outcomes = Counter(record.status for record in repository.records)
    assert outcomes["ok"] == TRAINED and not outcomes["failed"]
    assert repository.last(Finished) is not None
    again = [one for one in repository.all(Decided) if one.decision == "reassign" and one.agent == "training"]
    assert len(again) == 1 and len(set(again[0].numbers)) == 1, "one node of one CPU had one trial"
