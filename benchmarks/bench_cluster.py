"""Print what a trial costs the driver where many run at once, on a cluster of simulated nodes on this machine.

    python benchmarks/bench_cluster.py --nodes 8 --cpus 8 --seconds 4 --trials 640

The loop is the real one (searcher, gate, Ray Tune, journal), joined by `resources.ray_address`; a trial sleeps as long
as a short training takes, so that all slots are busy and the machine is not. Each node is a raylet with its agents,
each slot a worker. The driver's CPU time counts from the first trial's end on.
"""

import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from ray.cluster_utils import Cluster
from rich.console import Console

from automcu_ray.records.journal import Repository
from automcu_ray.records.record import TrainingSummary
from automcu_ray.run import supervisor, trials
from automcu_ray.run.plan import prepare
from automcu_ray.runtime.cluster import tune
from automcu_ray.runtime.command import run_command
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.run_folder import RunFolder

_STORE_BYTES = 80_000_000  # of each node's object store


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
    node = {"num_cpus": cpus, "object_store_memory": _STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            cluster.add_node(**node)
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
