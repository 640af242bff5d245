"""Metrics of a run, worked out by hand."""

import pytest

from automcu_ray.core.cost import Cost
from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.metrics import hypervolume, metrics, worked_seconds
from automcu_ray.records.record import Record, Status, TrainingSummary


def record(number: int, status: Status, accuracy: float | None = None, ram: int = 50, flash: int = 50) -> Record:
    fits = status in ("ok", "failed")
    report = FeasibilityReport(feasible=fits, backend="x", rung=Rung.LINK, ram_bytes=ram, flash_bytes=flash)
    training = None if accuracy is None else TrainingSummary(val_accuracy=accuracy)
    candidate = Candidate(number=number, hash=f"h{number}")
    return Record(candidate=candidate, status=status, feasibility=report, training=training)


@pytest.mark.parametrize(
    ("points", "volume"),
    [
        ([], 0.0),
        ([(0.5, 0.5, 0.5)], 0.125),
        ([(0.5, 0.5, 0.5), (0.4, 0.4, 0.4)], 0.125),  # dominated
        ([(1.0, 0.5, 0.5), (0.5, 1.0, 0.5)], 0.25 + 0.125),  # two slabs that share a corner of 0.125
        ([(0.5, 0.5, -0.1)], 0.0),  # beyond a limit
    ],
)
def test_hypervolume(points: list[tuple[float, float, float]], volume: float) -> None:
    assert hypervolume(points) == pytest.approx(volume)


def test_figures_of_a_run() -> None:
    records = [
        record(1, "ok", 0.5),
        record(2, "infeasible"),
        record(3, "ok", 0.4),
        record(4, "failed"),
        record(5, "ok", 0.8, ram=100),
        record(6, "duplicate"),
    ]
    found = metrics(records, ram_limit_bytes=100, flash_limit_bytes=100)
    assert (found.proposals, found.trained, found.distinct) == (6, 3, 6)
    assert found.anytime == (0.5, 0.5, 0.8)
    assert found.feasible_at_first_ask == pytest.approx(4 / 6)
    assert found.hypervolume == pytest.approx(0.5 * 0.5 * 0.5)  # the third is at the limit: no room left


def test_what_an_engine_named_and_was_trained_is_counted_without_what_the_loop_made_of_it() -> None:
    records = [record(1, "ok", 0.5), record(2, "ok", 0.6), record(3, "infeasible"), record(4, "ok", 0.7)]
    talks, origins = (0, 1, 2, 0), (0, 0, 0, 3)
    told = [
        one.replace(candidate=one.candidate.replace(talk=talk, origin=origin))
        for one, talk, origin in zip(records, talks, origins, strict=True)
    ]
    assert metrics(told, ram_limit_bytes=100, flash_limit_bytes=100).by_engine == 1


def test_a_network_trained_in_vain_counts_as_trained_and_as_a_failure() -> None:
    records = [
        record(1, "infeasible", 0.9, ram=200),
        record(2, "ok", 0.5),
        record(3, "invalid"),
        record(4, "infeasible"),
    ]
    found = metrics(records, ram_limit_bytes=100, flash_limit_bytes=100)
    assert (found.trained, found.anytime, found.best) == (2, (None, 0.5), 0.5)
    assert found.failure_rate == 2 / 4  # the one trained in vain, and the one that was no network
    assert found.feasible_at_first_ask == 1 / 4


def test_what_had_been_spent_by_each_trained_candidate() -> None:
    spent = [Cost(prompt_tokens=10, usd=0.5), Cost(completion_tokens=5), Cost(prompt_tokens=1, usd=0.25)]
    finished = [(record(1, "infeasible"), 101.0), (record(2, "ok", 0.5), 104.0), (record(3, "ok", 0.4), 110.0)]
    records = [one.replace(cost=cost, finished_at_s=at) for (one, at), cost in zip(finished, spent, strict=True)]
    found = metrics(records, ram_limit_bytes=100, flash_limit_bytes=100, started_at_s=[100.0])
    assert (found.anytime_tokens, found.anytime_usd) == ((15, 16), (0.5, 0.75))
    assert found.anytime_seconds == (4.0, 10.0)


def test_the_time_between_a_kill_and_the_next_start_is_not_work() -> None:
    """Begun at 100, last record at 130, killed; begun again at 500."""
    starts, ends = [100.0, 500.0], [110.0, 130.0, 510.0]
    assert [worked_seconds(at, starts, ends) for at in ends] == [10.0, 30.0, 40.0]
    assert worked_seconds(50.0, starts, ends) == 0.0


def test_an_engine_that_failed_was_not_a_proposal() -> None:
    silent = Violation(rung=Rung.SCHEMA, resource="engine", message="no reply")
    lost = Record(candidate=Candidate(number=2, violations=(silent,)), status="invalid")
    found = metrics([record(1, "ok", 0.5), lost], ram_limit_bytes=100, flash_limit_bytes=100)
    assert found.feasible_at_first_ask == 1.0


def test_nothing_trained_is_not_measured() -> None:
    found = metrics([], ram_limit_bytes=100, flash_limit_bytes=100)
    assert (found.anytime, found.hypervolume, found.feasible_at_first_ask) == ((), None, None)


def test_speed_has_a_volume_of_its_own_where_it_is_limited() -> None:
    records = [record(1, "ok", 0.5), record(2, "ok", 0.8)]
    fast = [one.replace(feasibility=one.feasibility and one.feasibility.replace(instructions=50)) for one in records]
    limits = {"ram_limit_bytes": 100, "flash_limit_bytes": 100}
    assert metrics(fast, **limits).hypervolume_of_speed is None
    found = metrics(fast, **limits, instructions_limit=200)
    assert found.hypervolume_of_speed == pytest.approx(0.8 * 0.75)
    assert found.hypervolume == metrics(records, **limits).hypervolume
