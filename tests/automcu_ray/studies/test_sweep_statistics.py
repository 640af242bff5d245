"""Outcomes of a sweep: kept run by run, and what they say together."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from automcu_ray.records.metrics import Metrics
from automcu_ray.studies.sweep_statistics import (
    RunResult,
    anytime,
    anytime_by,
    holm,
    paired_p,
    read_result,
    spread,
    write_parquet,
    write_result,
)


def result(seed: int, *accuracies: float | None, arm: str = "a", seconds: tuple[float, ...] = ()) -> RunResult:
    about: dict[str, Any] = {"proposals": len(accuracies), "trained": len(accuracies), "distinct": 1}
    found = Metrics(anytime=accuracies, anytime_seconds=seconds, anytime_tokens=(0,) * len(accuracies), **about)
    test = accuracies[-1] if accuracies else None
    about = {"name": f"{arm}-{seed}", "versions": {"torch": "1"}, "seconds": 1.0}
    return RunResult(arm=arm, case="c", seed=seed, metrics=found, test_accuracy=test, **about)


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


def test_holm_multiplies_by_how_many_are_left_and_never_falls() -> None:
    assert holm({"a": 0.04, "b": 0.01, "c": 0.03}) == pytest.approx({"b": 0.03, "c": 0.06, "a": 0.06})
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0} and holm({}) == {}


def test_a_curve_begins_where_every_run_has_a_network_that_fits() -> None:
    curve = anytime([result(0, None, 0.5, 0.9), result(1, 0.3, 0.7, 0.7)])
    assert curve is not None and curve.at == (2, 3) and curve.mean == pytest.approx((0.6, 0.8))
    assert anytime([result(0, None), result(1, 0.3)]) is None


def test_a_curve_against_seconds_steps_when_runs_step_and_keeps_what_a_run_ended_with() -> None:
    runs = [result(0, 0.1, 0.5, seconds=(1.0, 3.0)), result(1, 0.3, 0.7, seconds=(2.0, 6.0))]
    curve = anytime_by(runs, "seconds")
    assert curve is not None and (curve.at[0], curve.at[-1]) == (2.0, 6.0)
    by_second = dict(zip(curve.at, curve.mean, strict=True))
    assert curve.mean[0] == pytest.approx((0.1 + 0.3) / 2) and curve.mean[-1] == pytest.approx((0.5 + 0.7) / 2)
    assert {round(mean, 6) for at, mean in by_second.items() if 3 <= at < 6} == {0.4}
    assert anytime_by(runs, "tokens") is None  # none was spent


def test_a_curve_is_as_long_as_its_shortest_run_and_lies_in_its_interval() -> None:
    curve = anytime([result(0, 0.1, 0.5, 0.9), result(1, 0.3, 0.7)])
    assert curve is not None and curve.mean == pytest.approx((0.2, 0.6))
    assert all(low <= mean <= high for mean, low, high in zip(curve.mean, curve.low, curve.high, strict=True))
    assert curve.low[0] == pytest.approx(0.1) and curve.high[0] == pytest.approx(0.3)
    assert anytime([result(0)]) is None and anytime([]) is None


def test_an_outcome_reads_back_and_a_torn_one_counts_as_none(tmp_path: Path) -> None:
    one = result(0, 0.5)
    write_result(tmp_path, one)
    assert read_result(tmp_path, one.name) == one
    path = tmp_path / f"{one.name}.json"
    path.write_text(path.read_text()[:20])
    assert read_result(tmp_path, one.name) is None and read_result(tmp_path, "never_run") is None


def test_parquet_has_one_row_a_run(tmp_path: Path) -> None:
    write_parquet(tmp_path / "results.parquet", [result(0, 0.5, 0.6), result(1)])
    rows = pq.read_table(tmp_path / "results.parquet").to_pylist()
    assert [row["anytime"] for row in rows] == [[0.5, 0.6], []]
    assert [row["test_accuracy"] for row in rows] == [0.6, None]
    assert json.loads(rows[0]["versions"]) == {"torch": "1"}
