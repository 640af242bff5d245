"""Print trials an hour for one, two, four and eight trials at once on one GPU, or on the CPU's cores without one.

    python benchmarks/bench_sharing.py [--at-once 1 2 4 8] [--images 45000] [--trials 24]

Each row is a whole search by the real loop: the same random proposals, the analytic rung, an epoch each on CIFAR-10,
validation at int8. Rates count from the end of as many trials as there are at once: those have waited for a worker.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

import torch
from rich.console import Console

from automcu_ray.records.journal import Repository
from automcu_ray.records.record import Record
from automcu_ray.run import supervisor
from automcu_ray.run.plan import prepare
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.run_folder import RunFolder

CHOICES: dict[str, str | None] = {"task": "cifar10", "searcher": "random", "backend": "analytic"}
MB = 1e6


def share(at_once: int, cores: int, on_gpu: bool) -> list[str]:
    """Return the settings that let so many trials run at once, each with an equal part of the machine."""
    settings = [f"resources.concurrent_trials={at_once}", f"resources.cpus_per_trial={cores / at_once:g}"]
    return [*settings, f"resources.gpus_per_trial={1 / at_once:g}"] if on_gpu else settings


def search(folder: Path, at_once: int, *settings: str) -> list[Record]:
    """Return the records of the trials of one search, in the order in which they ended."""
    run = RunFolder(folder / str(at_once))
    with Console(file=sys.stderr, quiet=True) as console:
        supervisor.run(prepare(compose(CHOICES, list(settings))), run, console)
    return [record for record in Repository(run.journal).records if record.training is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 2, 4, 8], help="trials that share the machine")
    parser.add_argument("--images", type=int, default=45_000, help="of training; a tenth as many of validation")
    parser.add_argument("--trials", type=int, default=24, help="in each row")
    options = parser.parse_args()
    if options.trials <= max(options.at_once):
        parser.error(f"--trials wants more than {max(options.at_once)}: the first of each worker does not count")
    on_gpu, cores = torch.cuda.is_available(), len(os.sched_getaffinity(0))
    device = torch.cuda.get_device_name() if on_gpu else "CPU"
    print(f"{device}, {cores} cores, {options.images} training images, {options.trials} trials a row")
    rows = options.images * 10 // 9
    size = [f"dataset.max_train={rows}", f"budget.trained={options.trials}", "budget.finalists=0"]
    first = 0.0
    with tempfile.TemporaryDirectory(prefix="automcu-bench-") as temporary:
        for at_once in options.at_once:
            records = search(Path(temporary), at_once, *size, *share(at_once, cores, on_gpu))
            ends = [record.finished_at_s for record in records]
            rate = 3600 * (len(ends) - at_once) / (ends[-1] - ends[at_once - 1])  # after the first one of each worker
            first = first or rate
            trainings = [record.training for record in records if record.training is not None]
            seconds = statistics.median([training.seconds or 0.0 for training in trainings])
            peak = max(training.peak_memory_bytes or 0 for training in trainings) / MB
            print(
                f"{at_once} at once: {rate:,.0f} trials an hour, {rate / first:.2f} times the first row; "
                f"a trial {seconds:.1f} s (median), at most {peak:,.0f} MB"
            )


if __name__ == "__main__":
    main()
