"""What the runs of a sweep came to: one row a run, and what the rows say together."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import stats

from automcu_ray.frozen import Frozen
from automcu_ray.metrics import Metrics
from automcu_ray.whole_file import write_whole

CONFIDENCE = 0.95
_RESAMPLES = 2000


class Outcome(Frozen):
    """One run of a sweep: its metrics, and the winner's figures; None where there was no winner, or no toolchain.

    `val_accuracy` chose the winner; `test_accuracy` was read once, for it.
    """

    arm: str
    case: str
    seed: int
    name: str
    metrics: Metrics
    seconds: float
    val_accuracy: float | None = None
    test_accuracy: float | None = None
    ram_bytes: int | None = None
    flash_bytes: int | None = None
    versions: dict[str, str]


class Spread(NamedTuple):
    """Mean and standard deviation over seeds (of the sample; None for one seed)."""

    mean: float
    deviation: float | None


def spread(values: Sequence[float]) -> Spread | None:
    """Return mean and spread, or None without values."""
    if not values:
        return None
    return Spread(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None)


def paired_p(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float | None:
    """Return the two-sided p-value of Wilcoxon's signed-rank test over the seeds that both have.

    None where fewer than five pairs differ: no such test can then fall below 0.05.
    """
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    if sum(difference != 0 for difference in differences) < 5:
        return None
    return float(stats.wilcoxon(differences).pvalue)


class Curve(NamedTuple):
    """Mean best validation accuracy after 1, 2, ... trained candidates, with its bootstrap interval (95 %)."""

    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def anytime(outcomes: Sequence[Outcome]) -> Curve | None:
    """Return the curve of one arm on one case, as long as its shortest run; None without a trained candidate.

    The interval is scipy's percentile bootstrap over seeds, with a fixed seed of its own.
    """
    length = min((len(outcome.metrics.anytime) for outcome in outcomes), default=0)
    if length == 0:
        return None
    rows = np.array([outcome.metrics.anytime[:length] for outcome in outcomes])
    mean = rows.mean(axis=0)
    if len(rows) < 2:
        return Curve(tuple(mean), tuple(mean), tuple(mean))
    found = stats.bootstrap(
        (rows,), np.mean, axis=0, n_resamples=_RESAMPLES, confidence_level=CONFIDENCE, method="percentile", rng=0
    ).confidence_interval
    return Curve(tuple(mean), tuple(found.low), tuple(found.high))


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Keep an outcome: from now on this run is done."""
    write_whole(folder / f"{outcome.name}.json", outcome.model_dump_json().encode())


def read_outcome(folder: Path, name: str) -> Outcome | None:
    """Return the outcome of a run that is done, or None; an unreadable file counts as none."""
    try:
        return Outcome.model_validate_json((folder / f"{name}.json").read_text())
    except (OSError, ValueError):
        return None


def write_parquet(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write one row a run; `anytime` is a list, `versions` JSON."""
    rows = []
    for outcome in outcomes:
        row = outcome.model_dump(exclude={"metrics", "versions"})
        rows.append({**row, **outcome.metrics.model_dump(), "versions": json.dumps(outcome.versions)})
    pq.write_table(pa.Table.from_pylist(rows), path)
