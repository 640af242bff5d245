"""What the runs of a sweep came to: one row a run, and what the rows say together."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import scipy

from automcu_ray.core.atomic_write import write_whole
from automcu_ray.core.learning import Learning
from automcu_ray.core.models import FrozenModel
from automcu_ray.records.metrics import Metrics

CONFIDENCE = 0.95
Cost = Literal["seconds", "tokens", "usd"]
_RESAMPLES = 2000
_POINTS = 60  # of a curve against a cost


class RunResult(FrozenModel):
    """One run of a sweep: its metrics, and the winner's figures; None where there was no winner, or no toolchain.

    `val_accuracy` chose the winner; `test_accuracy` was read once, for it. `test_value` is that of the metric of
    `learning`, in its own unit; `val_accuracy` and what `metrics` compare are its scores. Of a search without finalists
    the sizes are those of its best candidate. `seconds` are of work, wherever it was interrupted; `by_rules`: a
    searcher that asks an engine had rules in place of a language model; `failed`: agents that share a conversation came
    to a dead end.
    """

    arm: str
    case: str
    seed: int
    name: str
    metrics: Metrics
    seconds: float
    val_accuracy: float | None = None
    test_accuracy: float | None = None
    learning: Learning = Learning()
    test_value: float | None = None
    ram_bytes: int | None = None
    flash_bytes: int | None = None
    by_rules: bool = False
    failed: bool = False
    versions: dict[str, str]

    @property
    def tested(self) -> float | None:
        """The test's value of the metric, in its own unit."""
        return self.test_accuracy if self.test_value is None else self.test_value


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
    return float(scipy.stats.wilcoxon(differences).pvalue)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return p-values corrected for their number by Holm's step-down method (Scand. J. Statist. 6, 1979).

    The smallest is multiplied by how many there are, the next by one less, and so on; none falls below the one before.
    """
    corrected, largest = {}, 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, p_values[name] * (len(p_values) - rank)))
        corrected[name] = largest
    return corrected


class Curve(NamedTuple):
    """Mean best validation score over seeds at each of `at` (trained candidates, or a cost), and its interval."""

    at: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def anytime(results: Sequence[RunResult]) -> Curve | None:
    """Return the curve of one arm on one case against trained candidates; None without a feasible one in every run.

    It begins where every run has a feasible network, and ends with the shortest run.
    """
    length = min((len(result.metrics.anytime) for result in results), default=0)
    rows = np.array([result.metrics.anytime[:length] for result in results], float)
    if not length or np.isnan(rows[:, -1]).any():
        return None
    first = int(np.isnan(rows).any(axis=0).sum())  # best so far: once there is one, there always is
    return _curve(np.arange(first, length) + 1.0, rows[:, first:])


def anytime_by(results: Sequence[RunResult], cost: Cost) -> Curve | None:
    """Return the curve of one arm on one case against a cost; None where nobody measured it, or it was nothing.

    It begins when the last run has a feasible network and goes on to the end of the longest run; one that has ended
    keeps what it had.
    """
    pairs = [(result.metrics.anytime, getattr(result.metrics, f"anytime_{cost}")) for result in results]
    known = [[(c, b) for b, c in zip(best, costs, strict=False) if b is not None] for best, costs in pairs]
    if not known or not all(known) or not max(row[-1][0] for row in known):
        return None
    grid = np.linspace(max(row[0][0] for row in known), max(row[-1][0] for row in known), _POINTS)
    rows = [
        np.array([best for _, best in row])[np.searchsorted([c for c, _ in row], grid, side="right") - 1]
        for row in known
    ]
    return _curve(grid, np.array(rows))


def _curve(at: npt.NDArray[Any], rows: npt.NDArray[Any]) -> Curve:
    """Return mean and interval of rows (runs, points): scipy's percentile bootstrap over runs, its seed fixed."""
    mean = rows.mean(axis=0)
    if len(rows) < 2:
        return Curve(tuple(at), tuple(mean), tuple(mean), tuple(mean))
    found = scipy.stats.bootstrap(
        (rows,), np.mean, axis=0, n_resamples=_RESAMPLES, confidence_level=CONFIDENCE, method="percentile", rng=0
    ).confidence_interval
    return Curve(tuple(at), tuple(mean), tuple(found.low), tuple(found.high))


def write_result(folder: Path, result: RunResult) -> None:
    """Keep an outcome: from now on this run is done."""
    write_whole(folder / f"{result.name}.json", result.model_dump_json().encode())


def read_result(folder: Path, name: str) -> RunResult | None:
    """Return the outcome of a run that is done, or None; an unreadable file counts as none."""
    try:
        return RunResult.model_validate_json((folder / f"{name}.json").read_text())
    except (OSError, ValueError):
        return None


def write_parquet(path: Path, results: Sequence[RunResult]) -> None:
    """Write one row a run; `anytime` and what had been spent by then are lists, `versions` JSON."""
    rows = []
    for result in results:
        row = result.model_dump(exclude={"metrics", "versions", "learning"}) | {"metric": result.learning.metric}
        rows.append({**row, **result.metrics.model_dump(), "versions": json.dumps(result.versions)})
    pq.write_table(pa.Table.from_pylist(rows), path)
