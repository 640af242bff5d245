"""Print what the loop itself costs: seconds a trial beyond training, a cached verdict, busy training slots.

The loop is the real one (gate, Tune, journal); its toolchain is left out, or in, as each row says.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from rich.console import Console

from automcu_ray.core.feasibility import FeasibilityReport, Rung
from automcu_ray.networks.lowering import lower
from automcu_ray.records.events import Searched
from automcu_ray.records.journal import Repository
from automcu_ray.run import supervisor
from automcu_ray.run.plan import prepare
from automcu_ray.runtime.config import RunConfig, compose
from automcu_ray.runtime.run_folder import RunFolder
from automcu_ray.sizing.footprint import check, footprint
from automcu_ray.sizing.verdict_cache import VerdictCache

TRIALS = 60
SHORT_FINALS = ("budget.finalists=1", "trainer.full.epochs=1", "board.mode=none")


def search(folder: Path, name: str, choices: dict[str, str | None], *settings: str) -> tuple[Repository, RunConfig]:
    """Run one search quietly; return its journal."""
    config = compose(choices, [*settings, *SHORT_FINALS])
    run = RunFolder(folder / name)
    with Console(file=sys.stderr, quiet=True) as console:
        supervisor.run(prepare(config), run, console)
    return Repository(run.journal), config


def one_slot(folder: Path) -> None:
    """Print framework seconds per trial, with a training slot that is never short of candidates."""
    for epochs in (1, 10):
        settings = (
            f"budget.trained={TRIALS}",
            "resources.concurrent_trials=1",
            f"trainer.proxy.epochs={epochs}",
            "trainer.proxy.patience=null",
        )
        repository, _ = search(folder, f"loop-{epochs}", {"searcher": "random", "backend": "analytic"}, *settings)
        trained = [record for record in repository.records if record.training is not None]
        wall = trained[-1].finished_at_s - trained[0].finished_at_s
        training = sum(record.training.seconds or 0.0 for record in trained[1:] if record.training)
        seconds = (wall - training) / (len(trained) - 1)  # from one trial's end to the next, on one slot
        print(f"framework seconds per trial of {epochs} reported epochs ({TRIALS} trials, one slot): {seconds:.3f}")


def cache_hit(folder: Path) -> None:
    """Print milliseconds of the look-up of a verdict that is in the cache."""
    task = prepare(compose({"searcher": "random", "backend": "analytic"})).task
    cache = VerdictCache(folder / "verdicts", task, "bench 1")
    report = FeasibilityReport(feasible=True, backend="bench", rung=Rung.LINK, ram_bytes=1, flash_bytes=1)
    hashes = [task.space.sample(Random(i)).hash for i in range(500)]
    for name in hashes:
        cache.put(name, report)
    times = []
    for name in hashes:
        started_s = time.perf_counter()
        found = cache.get(name)
        times.append(time.perf_counter() - started_s)
        assert found is not None and found.cached
    print(f"verdict cache hit, median of {len(hashes)}: {1000 * statistics.median(times):.3f} ms")


def default_run(folder: Path) -> None:
    """Print verdict CPU seconds by rung and the share of busy slots of the default search, its cache empty."""
    repository, config = search(folder, "default", {})
    searched = repository.last(Searched)
    assert searched is not None
    verdicts = [r.feasibility for r in repository.records if r.feasibility and r.feasibility.seconds_by_rung]
    for rung in (Rung.CONVERT, Rung.LINK):
        seconds = [report.seconds_by_rung[rung] for report in verdicts]
        print(
            f"CPU seconds per verdict, rung {rung}: median {statistics.median(seconds):.2f}, "
            f"max {max(seconds):.2f} ({len(seconds)} verdicts)"
        )
    task = prepare(config).task
    specs = [task.space.sample(Random(i)).spec for i in range(500)]
    started_s = time.perf_counter()
    for spec in specs:  # schema, shapes and analytic rung of new specs
        assert spec is not None
        graph = lower.__wrapped__(spec, task.input_shape, task.num_classes)
        check(footprint(graph, task.precision), task.ram_limit_bytes, task.flash_limit_bytes)
    print(f"analytic rung: {1e6 * (time.perf_counter() - started_s) / len(specs):.0f} us")
    print(
        f"default search: {searched.seconds:.0f} s, {sum(r.status == 'ok' for r in repository.records)} trained, "
        f"{sum(r.status == 'infeasible' for r in repository.records)} refused, "
        f"training slots busy {searched.slot_busy_share:.0%} of the time"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="automcu-bench-") as temporary:
        os.environ["AUTOMCU_CACHE"] = temporary
        cache_hit(Path(temporary))
        one_slot(Path(temporary))
        default_run(Path(temporary))
