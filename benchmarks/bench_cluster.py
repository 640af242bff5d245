"""Print what a trial costs the driver where many run at once, on a cluster of simulated nodes on this machine.

    python benchmarks/bench_cluster.py --nodes 8 --cpus 8 --seconds 4 --trials 640

The loop is the real one (searcher, gate, Ray Tune, journal), joined by `resources.ray_address`; a trial sleeps as long
as a short training takes, so that all slots are busy and the machine is not. Each node is a raylet with its agents,
each slot a worker. The driver's CPU time counts from the first trial's end on.

So that 64 nodes fit into a small machine, what only carries metrics and copies logs is left out of each: Ray's
dashboard agent is a shell that does nothing but write the files that a raylet waits for.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from ray._private import services
from ray.cluster_utils import Cluster
from rich.console import Console

from automcu_ray.core.errors import ConfigError
from automcu_ray.records.journal import Repository
from automcu_ray.records.record import TrainingSummary
from automcu_ray.run import supervisor, trials
from automcu_ray.run.plan import prepare
from automcu_ray.runtime.cluster import tune
from automcu_ray.runtime.command import run_command
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.run_folder import RunFolder

_STORE_BYTES = 80_000_000  # of each node's object store
_NODE_BYTES, _WORKER_BYTES, _SPARE_BYTES = 62 << 20, 115 << 20, 2 << 30  # measured; the last is left to others
_AGENT = """#!/bin/sh
for word in "$@"; do
    case "$word" in --session-dir=*) folder=${word#*=} ;; --node-id=*) node=${word#*=} ;; esac
done
for port in metrics_agent_port metrics_export_port dashboard_agent_listen_port; do
    printf 9 > "$folder/.$port$node" && mv "$folder/.$port$node" "$folder/${port}_$node"
done
exec sleep 86400
"""


class _WithoutDashboardAgents:
    """Stands in for the module `subprocess` where Ray writes down how its agents are started."""

    def __init__(self, folder: Path) -> None:
        self.script = folder / "agent.sh"
        self.script.write_text(_AGENT)

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def list2cmdline(self, argv: list[str]) -> str:
        shell = ["/bin/sh", str(self.script)] if any(word.endswith("dashboard/agent.py") for word in argv) else []
        return subprocess.list2cmdline([*shell, *argv])


def _sleeper(seconds: float) -> Any:
    class Sleeper(tune.Trainable):  # type: ignore[misc]
        """Takes its time and reports an accuracy that its number says."""

        def setup(self, config: dict[str, Any]) -> None:
            self.config = config

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.config = new_config
            return True

        def step(self) -> dict[str, Any]:
            time.sleep(seconds)
            accuracy = 0.5 + self.config["number"] % 100 / 1000
            return {**TrainingSummary(val_accuracy=accuracy, device="none").reported(), "done": True}

    return tune.with_resources(Sleeper, {"cpu": 1})


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _watch(samples: list[tuple[float, float]], over: threading.Event) -> None:
    while not over.wait(0.5):
        samples.append((time.time(), time.process_time()))


def main(
    nodes: Annotated[int, typer.Option(min=1, help="Simulated nodes.")] = 64,
    cpus: Annotated[int, typer.Option(min=1, help="CPUs, in name, of each: as many trials at once.")] = 1,
    seconds: Annotated[float, typer.Option(min=0, help="That a trial sleeps.")] = 4.0,
    count: Annotated[int, typer.Option("--trials", min=2, help="In all.")] = 640,
) -> None:
    """Run the trials and print the driver's CPU time a trial, and how busy the slots were."""
    slots = nodes * cpus
    wanted, free = nodes * _NODE_BYTES + slots * _WORKER_BYTES + _SPARE_BYTES, _available_bytes()
    if wanted > free:
        raise ConfigError(
            f"{nodes} nodes with {slots} workers want {wanted >> 20} MB of memory, found {free >> 20} MB."
        )
    node = {"num_cpus": cpus, "object_store_memory": _STORE_BYTES, "include_log_monitor": False}
    with tempfile.TemporaryDirectory(prefix="automcu-agents-") as agents:
        services.subprocess = _WithoutDashboardAgents(Path(agents))
        _run(nodes, slots, node, seconds, count)


def _run(nodes: int, slots: int, node: dict[str, Any], seconds: float, count: int) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        for number in range(1, nodes):
            cluster.add_node(**node)
            if number % 8 == 0:
                print(f"{number + 1} nodes are up", file=sys.stderr, flush=True)
        trials.slots = lambda plan: slots
        trials._trainable = lambda plan: _sleeper(seconds)
        samples: list[tuple[float, float]] = []
        over = threading.Event()
        with tempfile.TemporaryDirectory(prefix="automcu-bench-") as temporary:
            settings = [f"budget.trained={count}", f"resources.ray_address={cluster.address}"]
            plan = prepare(compose({"task": "nasbench201", "searcher": "random"}, settings))
            folder = RunFolder(Path(temporary) / "run")
            threading.Thread(target=_watch, args=(samples, over), daemon=True).start()
            with Console(file=sys.stderr, quiet=True) as console:
                supervisor.run(plan, folder, console)
            over.set()
            records = Repository(folder.journal).records
    finally:
        cluster.shutdown()
    ends = [record.finished_at_s for record in records if record.status == "ok"]
    at_s, cpu_s = np.array(samples).T
    for name, first in (("all", 0), ("once all slots run", slots)):
        if len(ends) - first < 2:
            continue
        took, spent = ends[-1] - ends[first], np.interp(ends[-1], at_s, cpu_s) - np.interp(ends[first], at_s, cpu_s)
        done = len(ends) - first - 1
        print(
            f"{name}: {done} trials of {seconds:g} s on {nodes} nodes, {slots} slots: {done / took:.1f} a second, "
            f"driver {1000 * spent / done:.1f} ms CPU a trial, slots busy {seconds * done / took / slots:.0%}"
        )
    print(f"{len(records) - len(ends)} other outcomes; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    run_command(main)
