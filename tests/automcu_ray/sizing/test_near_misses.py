"""Near misses, worked out by hand."""

import pytest

from automcu_ray.core.feasibility import Change, FeasibilityReport, Rung, Violation, too_slow
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from automcu_ray.sizing.near_misses import advice, by_resource, excess, known_size, least_needs, nearest_misses

LIMITS = {"ram": 24 * 1024, "flash": 48 * 1024}


def over(resource: str, by: int, rung: Rung = Rung.LINK, **more: object) -> Violation:
    limit = LIMITS.get(resource, 1000)
    found = {"found_bytes": limit + by, "limit_bytes": limit, "message": "over", **more}
    return Violation(rung=rung, resource=resource, **found)  # type: ignore[arg-type]


def refused(number: int, *violations: Violation, hash_: str = "") -> Record:
    rung = violations[0].rung if violations else Rung.SCHEMA
    report = FeasibilityReport(feasible=False, backend="x", rung=rung, violations=violations)
    candidate = Candidate(number=number, hash=hash_ or f"h{number}")
    return Record(candidate=candidate, status="infeasible", feasibility=report)


def numbers(records: list[Record]) -> list[int]:
    return [record.candidate.number for record in records]


def test_excess_adds_the_shares_of_the_limits_and_takes_the_worst_of_a_resource_once() -> None:
    assert excess(refused(1, over("ram", 24 * 256), over("ram", 24 * 512), over("flash", 48 * 256))) == 0.5 + 0.25


def test_what_bytes_alone_did_not_keep_out_is_no_miss() -> None:
    operator = Violation(rung=Rung.CONVERT, resource="operator", message="no such operator")
    assert excess(refused(1, operator)) is None and excess(refused(2, over("ram", 10), operator)) is None


def test_a_measured_miss_is_nearer_than_a_lower_bound_and_equal_networks_count_once() -> None:
    records = [
        refused(1, over("ram", 5, Rung.ANALYTIC)),  # needs 5 bytes too many at least
        refused(2, over("ram", 300)),
        refused(3, over("ram", 200), hash_="twin"),
        refused(4, over("ram", 200), hash_="twin"),
        refused(5, over("flash", 350)),  # a smaller share of a larger limit
    ]
    assert numbers(nearest_misses(records)) == [5, 3, 2]
    assert {name: numbers(found) for name, found in by_resource(records).items()} == {"ram": [3, 2, 1], "flash": [5]}


def test_the_least_need_and_the_way_out(digits_task: Task) -> None:
    records = [refused(1, over("ram", 10, Rung.ANALYTIC)), refused(2, over("ram", 1025)), refused(3, over("ram", 5000))]
    assert least_needs(records, digits_task) == [
        "the least RAM of any proposal is 25,601 bytes (#2), the limit is 24,576: set constraints.ram_kb=26"
    ]
    assert known_size(records[0], "ram") == (24586, True) and known_size(records[0], "flash") is None


def test_where_a_proposal_fitted_and_failed_in_training_sizes_are_not_to_blame(digits_task: Task) -> None:
    fitted = FeasibilityReport(feasible=True, backend="analytic", rung=Rung.ANALYTIC)
    failed = Record(candidate=Candidate(number=1), status="failed", feasibility=fitted)
    assert least_needs([failed, refused(2, over("ram", 99, Rung.ANALYTIC))], digits_task) == []


def test_a_resource_that_some_proposal_had_enough_of_is_not_to_blame(digits_task: Task) -> None:
    sizes = {"ram_bytes": 20_000, "flash_bytes": 50_000}
    short = (over("flash", 848),)
    report = FeasibilityReport(feasible=False, backend="x", rung=Rung.LINK, violations=short, **sizes)
    small = Record(candidate=Candidate(number=1), status="infeasible", feasibility=report)
    found = least_needs([small, refused(2, over("ram", 99))], digits_task)
    assert found == ["the least Flash of any proposal is 50,000 bytes (#1), the limit is 49,152: "
                     "set constraints.flash_kb=49"]  # fmt: skip


@pytest.mark.parametrize(
    ("violation", "text"),
    [
        (over("ram", 900, where="layer_3"), "RAM is 900 bytes over: shrink layer_3, or set constraints.ram_kb=25"),
        (
            over("flash", 2**20, Rung.ANALYTIC, fix=Change(where="layer_1.stride", before=1, after=2)),
            "Flash is at least 1,048,576 bytes over: try layer_1.stride 1 -> 2, "
            "or take a larger target (stm32f405 has 1,024 KB)",
        ),
        (over("data_memory", 7), "data_memory is 7 bytes over: shrink the network"),
    ],
)
def test_advice(violation: Violation, text: str, digits_task: Task) -> None:
    assert advice(violation, digits_task) == text


def test_instructions_are_a_resource_where_they_are_limited(digits_task: Task) -> None:
    task = digits_task.replace(constraints=digits_task.constraints.replace(instructions_m=0.5))
    slow = refused(1, too_slow("layer_2.conv", 625_000, 500_000))
    assert excess(slow) == 0.25 and known_size(slow, "instructions") == (625_000, False)
    fix = slow.feasibility.violations[0].replace(  # type: ignore[union-attr]
        fix=Change(where="layer_2.out_channels", before=16, after=12)
    )
    assert advice(fix, task) == (
        "125,000 instructions over: try layer_2.out_channels 16 -> 12, or set constraints.instructions_m=0.63"
    )
    assert least_needs([slow], task) == [
        "the least instructions of any proposal is 625,000 (#1), the limit is 500,000: "
        "set constraints.instructions_m=0.63"
    ]
