"""Outcomes of a sweep: kept run by run, and what they say together."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from automcu_ray.metrics import Metrics
from automcu_ray.outcomes import Outcome, anytime, paired_p, read_outcome, spread, write_outcome, write_parquet


def outcome(seed: int, *accuracies: float, arm: str = "a") -> Outcome:
    found = Metrics(proposals=len(accuracies), trained=len(accuracies), distinct=1, anytime=accuracies)
    test = accuracies[-1] if accuracies else None
    about = {"name": f"{arm}-{seed}", "versions": {"torch": "1"}, "seconds": 1.0}
    return Outcome(arm=arm, case="c", seed=seed, metrics=found, test_accuracy=test, **about)  # type: ignore[arg-type]


def test_spread_is_of_the_sample_and_none_for_one() -> None:
    found = spread([1.0, 2.0, 3.0])
    assert found is not None and found == (2.0, 1.0)
    assert spread([5.0]) == (5.0, None) and spread([]) is None


def test_six_wins_of_six_are_the_smallest_p_that_six_pairs_can_give() -> None:
    base = {seed: 0.0 for seed in range(6)}
    assert paired_p({seed: seed + 1.0 for seed in range(6)}, base) == pytest.approx(2 / 2**6)


def test_pairs_go_by_seed_and_too_few_say_nothing() -> None:
    assert paired_p({seed: 1.0 for seed in range(4)}, {seed: 0.0 for seed in range(9)}) is None
    assert paired_p({seed: 0.0 for seed in range(9)}, {seed: 0.0 for seed in range(9)}) is None


def test_a_curve_is_as_long_as_its_shortest_run_and_lies_in_its_interval() -> None:
    curve = anytime([outcome(0, 0.1, 0.5, 0.9), outcome(1, 0.3, 0.7)])
    assert curve is not None and curve.mean == pytest.approx((0.2, 0.6))
    assert all(low <= mean <= high for mean, low, high in zip(curve.mean, curve.low, curve.high, strict=True))
    assert curve.low[0] == pytest.approx(0.1) and curve.high[0] == pytest.approx(0.3)
    assert anytime([outcome(0)]) is None and anytime([]) is None


def test_an_outcome_reads_back_and_a_torn_one_counts_as_none(tmp_path: Path) -> None:
    one = outcome(0, 0.5)
    write_outcome(tmp_path, one)
    assert read_outcome(tmp_path, one.name) == one
    path = tmp_path / f"{one.name}.json"
    path.write_text(path.read_text()[:20])
    assert read_outcome(tmp_path, one.name) is None and read_outcome(tmp_path, "never_run") is None


def test_parquet_has_one_row_a_run(tmp_path: Path) -> None:
    write_parquet(tmp_path / "results.parquet", [outcome(0, 0.5, 0.6), outcome(1)])
    rows = pq.read_table(tmp_path / "results.parquet").to_pylist()
    assert [row["anytime"] for row in rows] == [[0.5, 0.6], []]
    assert [row["test_accuracy"] for row in rows] == [0.6, None]
    assert json.loads(rows[0]["versions"]) == {"torch": "1"}
