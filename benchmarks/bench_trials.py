"""Print what ten thousand trials cost in the real loop (gate, Ray Tune, journal): time and memory for each thousand.

The trials are look-ups in NAS-Bench-201, or in a table made up for the purpose where that is not at hand, so what is
left is the loop itself. Time counts from the end of the first trial, which waits for the worker.
"""

import os
import sys
import tempfile
import threading
import time
from itertools import product
from pathlib import Path
from random import Random
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console

from automcu_ray.core.errors import ConfigError
from automcu_ray.networks.cell import EDGES, OPERATIONS, CellSpec
from automcu_ray.records.journal import Repository
from automcu_ray.run import supervisor, trials
from automcu_ray.run.plan import Plan, prepare
from automcu_ray.runtime import cluster
from automcu_ray.runtime.command import run_command
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.run_folder import RunFolder
from searchers.tune_searchers import RandomSearch
from trainables.datasets.base import data_folder

BLOCK = 1000
PLAIN_TRIALS = 20
MB = 1e6


class Sample(NamedTuple):
    """What the driver looked like at one moment: seconds since the epoch, CPU seconds, bytes of memory, and more."""

    at_s: float
    cpu_s: float
    rss_bytes: int
    handles: int
    threads: int
    temporary_files: int  # in the folder for them, and in shared memory


class Sampler(threading.Thread):
    """Looks at this process twice a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[Sample] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.5):
            rss_bytes = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            handles, threads = (len(os.listdir(f"/proc/self/{kind}")) for kind in ("fd", "task"))
            temporary = sum(len(os.listdir(folder)) for folder in (tempfile.gettempdir(), "/dev/shm"))
            self.samples.append(Sample(time.time(), time.process_time(), rss_bytes, handles, threads, temporary))

    def at(self, times_s: list[float], column: str) -> list[float]:
        """Return a column at some moments, interpolated."""
        known = [sample.at_s for sample in self.samples]
        values = [getattr(sample, column) for sample in self.samples]
        return [float(value) for value in np.interp(times_s, known, values)]


def main(
    count: Annotated[int, typer.Argument(min=BLOCK, help="Trials.")] = 10_000,
    trials_per_tuner: Annotated[
        int, typer.Argument(min=1, help="Tune is started anew after so many; as many as trials: one Tuner for all.")
    ] = trials.TRIALS_PER_TUNER,
) -> None:
    """Run the trials and print a row for each thousand, then what plain Tune takes for the first few."""
    trials.TRIALS_PER_TUNER = trials_per_tuner
    with tempfile.TemporaryDirectory(prefix="automcu-bench-") as temporary:
        _table(Path(temporary))
        config = compose({"task": "nasbench201", "searcher": "random"}, [f"budget.trained={count}"])
        plan, folder = prepare(config), RunFolder(Path(temporary) / "run")
        cluster.start(config.resources)
        sampler, snapshots = Sampler(), _weigh_snapshots()
        sampler.start()
        with Console(file=sys.stderr, quiet=True) as console:
            supervisor.run(plan, folder, console)
        sampler.over.set()
        print(f"{count} trials, a fresh Tuner every {trials_per_tuner}")
        seconds = _print_blocks(Repository(folder.journal), sampler, count)
        journal, report = (path.stat().st_size / MB for path in (folder.journal, folder.report))
        print(
            f"largest snapshot of Tune: {max(snapshots) / MB:.1f} MB; journal {journal:.1f} MB; report {report:.1f} MB"
        )
        plain = _plain_tune(plan, Path(temporary) / "plain")
        print(f"plain Tune, function trainable, defaults, {PLAIN_TRIALS} trials: {plain:.2f} s a trial", end=", ")
        print(f"{plain / seconds:.0f} times ours")


def _print_blocks(repository: Repository, sampler: Sampler, count: int) -> float:
    """Print a row for each thousand, the first one without the first trial; return the mean wall seconds of a trial."""
    ends = [record.finished_at_s for record in repository.records if record.status == "ok"][:count]
    marks = [ends[0], *ends[BLOCK - 1 :: BLOCK]]
    cpu_s, rss = sampler.at(marks, "cpu_s"), sampler.at(marks, "rss_bytes")
    print("trials  trials/s  driver CPU ms/trial  driver MB  KB/trial")
    for block in range(1, len(marks)):
        trials_of_it = BLOCK - (block == 1)
        rate = trials_of_it / (marks[block] - marks[block - 1])
        cpu_ms = 1000 * (cpu_s[block] - cpu_s[block - 1]) / trials_of_it
        grown_kb = (rss[block] - rss[block - 1]) / trials_of_it / 1000
        print(f"{block * BLOCK:6}  {rate:8.1f}  {cpu_ms:19.1f}  {rss[block] / MB:9.0f}  {grown_kb:8.1f}")
    for column in ("handles", "threads", "temporary_files"):
        first, *_, last = sampler.at(marks, column)
        most = max(getattr(sample, column) for sample in sampler.samples)
        print(
            f"{column.replace('_', ' ')}: {first:.0f} after the first trial, {last:.0f} after the last, {most} at most"
        )
    seconds = (ends[-1] - ends[0]) / (len(ends) - 1)
    ratio = (cpu_s[-1] - cpu_s[-2]) / (cpu_s[1] - cpu_s[0])
    print(f"overall {1 / seconds:.1f} trials a second; CPU of the last thousand to the first: {ratio:.2f}")
    return seconds


def _plain_tune(plan: Plan, folder: Path) -> float:
    """Return the wall seconds of a trial in Tune as it comes: a function, nothing reused; the first one left out."""
    dataset: Any = plan.dataset
    accuracies = dataset.val
    ends: list[float] = []

    def look_up(config: dict[str, Any]) -> None:
        cell = CellSpec.model_validate(config["cell"])
        cluster.tune.report({"val_accuracy": accuracies[str(cell)]})

    class Ends(cluster.tune.Callback):  # type: ignore[misc]
        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            ends.append(time.time())

    cluster.start(plan.config.resources)
    searcher = RandomSearch(plan.task, seed=plan.config.seed)
    cluster.tune.Tuner(
        look_up,
        tune_config=cluster.tune.TuneConfig(num_samples=PLAIN_TRIALS, search_alg=searcher),
        run_config=cluster.tune.RunConfig(storage_path=str(folder), verbose=0, callbacks=[Ends()]),
    ).fit()
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def _table(folder: Path) -> None:
    """Make up a table of the benchmark's size, where no data folder has the real one."""
    try:
        data_folder("nasbench201")
    except ConfigError:
        rng = Random(0)
        cells = [str(CellSpec(operations=found)) for found in product(OPERATIONS, repeat=len(EDGES))]
        columns = {name: [100 * rng.random() for _ in cells] for name in ("cifar10_valid", "cifar10_test")}
        (folder / "nasbench201").mkdir()
        pq.write_table(pa.table({"arch_str": cells, **columns}), folder / "nasbench201" / "nasbench201.parquet")
        os.environ["AUTOMCU_DATA"] = str(folder)


def _weigh_snapshots() -> list[int]:
    """Return a list that gets the bytes of each Tuner's last snapshot, just before it is removed."""
    found, tidy = [], trials.tidy

    def weigh(folder: Path) -> None:
        found.append(sum(path.stat().st_size for path in folder.iterdir() if path.is_file()))
        tidy(folder)

    trials.tidy = weigh
    return found


if __name__ == "__main__":
    run_command(main)
