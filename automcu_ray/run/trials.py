"""The trials of a search: Ray Tune, started anew every so many trials, over one searcher, one gate and one journal."""

import itertools
import math
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from automcu_ray.run import loggers
from automcu_ray.run.plan import Plan
from automcu_ray.runtime import cluster, interruption
from automcu_ray.runtime.cluster import tune
from searchers.gate.gate import FeasibilityCallback
from searchers.tune_searcher import TuneSearcher
from trainables.datasets.nasbench201 import Table
from trainables.proxy import ProxyTrainable
from trainables.tabular import TableTrainable

TRIALS_PER_TUNER = 1000


def run(plan: Plan, folder: Path, searcher: TuneSearcher, watchers: Sequence[tune.Callback]) -> None:
    """Run trials until the searcher is finished, the time is up, or Ctrl-C or SIGTERM; `watchers` see each step.

    Raises:
        KeyboardInterrupt: the searcher is finished, and what comes after it may not begin; or Ray has died.
    """
    try:
        _run_tuners(plan, folder, searcher, watchers)
    except KeyboardInterrupt:  # where Tune has no handler of its own: between two Tuners, while one begins
        if interruption.urgent() or searcher.exhausted:
            raise


def _run_tuners(plan: Plan, folder: Path, searcher: TuneSearcher, watchers: Sequence[tune.Callback]) -> None:
    """Run one Tuner after the other.

    Tune keeps each trial it has run, looks through all of them at every step and writes all into its snapshot, so a
    trial would cost ever more. A fresh Tuner every so many trials bounds that; searcher, gate and journal go on.
    """
    started_s, seconds = time.monotonic(), plan.config.budget.seconds
    stamp = time.strftime("%Y%m%d-%H%M%S")
    trainable, trainer = _trainable(plan), plan.config.trainer
    for left in folder.glob("*/"):  # by a run that was killed
        tidy(left)
    for part in itertools.count():
        left_s = None if seconds is None else seconds - (time.monotonic() - started_s)
        if left_s is not None and left_s <= 0:
            return
        name, scheduler = f"{stamp}-{part}", None
        if trainer.asha:  # it stops trials between reports (Li et al. 2020, arXiv:1810.05934)
            scheduler = tune.schedulers.ASHAScheduler(
                metric="score", mode="max", max_t=trainer.proxy.reports, reduction_factor=3
            )
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                num_samples=TRIALS_PER_TUNER,  # at most: the searcher knows when to stop
                search_alg=searcher,
                scheduler=scheduler,
                max_concurrent_trials=slots(plan),
                reuse_actors=True,
                time_budget_s=left_s,
                trial_name_creator=_number,
                trial_dirname_creator=_number,
            ),
            run_config=tune.RunConfig(
                name=name,
                storage_path=str(folder),
                verbose=0,
                # a new list for each Tuner: Tune adds its own, of every trial
                callbacks=[FeasibilityCallback(searcher), *watchers, *loggers.callbacks(plan.config.loggers)],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=cluster.retries(plan.config.resources)),
            ),
        )
        searcher.stopped = _stopped(math.inf if left_s is None else time.monotonic() + left_s)
        ended = interrupted(tuner)
        tidy(folder / name)
        if ended or searcher.exhausted:
            return


def _stopped(until_s: float) -> Callable[[], bool]:
    """Return what says that a signal or the end of the time has come, while Tune waits for a trial."""
    signalled = interruption.seen_by_tune()
    return lambda: signalled() or time.monotonic() > until_s


def slots(plan: Plan) -> int:
    """Return how many trials run at once; a look-up in a table needs no share of a GPU, and takes no time."""
    if isinstance(plan.dataset, Table):
        return 1
    return cluster.slots(plan.config.resources, reserved_gpus=plan.reserved_gpus)


def interrupted(tuner: tune.Tuner) -> bool:
    """Run a Tuner to its end; return whether that end was Ctrl-C or SIGTERM.

    Tune's handler for it lets a step end and then puts the usual one back. One that has caught nothing would stay for
    good, and swallow the first Ctrl-C of what comes after.
    """
    usual = signal.getsignal(signal.SIGINT)
    interruption.check()
    tuner.fit()
    if not interruption.tune_listens():
        return False
    caught = signal.getsignal(signal.SIGINT) is usual
    signal.signal(signal.SIGINT, usual)
    return caught


def _number(trial: Any) -> str:
    """Return the number of a trial's candidate: its folder is found by it, and Tune keeps a short name."""
    return str(trial.config["number"])


def tidy(folder: Path) -> None:
    """Remove what Tune leaves for a restore of its own (the journal is the truth); a failed trial's log stays."""
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
        elif not any(path.iterdir()):
            path.rmdir()


def _trainable(plan: Plan) -> Any:
    """Return the proxy trainable with its data and its share of the machine."""
    if isinstance(plan.dataset, Table):
        return tune.with_resources(tune.with_parameters(TableTrainable, table=plan.dataset), {"cpu": 1})
    config = plan.config
    cpus, gpus = cluster.per_trial(config.resources, reserved_gpus=plan.reserved_gpus)
    trainable = tune.with_parameters(
        ProxyTrainable,
        task=plan.task,
        protocol=config.trainer.proxy,
        train_split=plan.dataset.train,
        val_split=plan.dataset.val,
        seed=config.seed,
        threads=max(1, int(cpus)),
        gpus=gpus,
        jail=config.jail,
        rank_by=config.rank_by,
    )
    return tune.with_resources(trainable, {"cpu": cpus, "gpu": gpus})
