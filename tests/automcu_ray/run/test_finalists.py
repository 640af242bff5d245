"""Who is trained fully, and who ships, worked out by hand."""

from automcu_ray.core.feasibility import FeasibilityReport, Rung, too_slow
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Finalist, Record, TrainingSummary
from automcu_ray.run.finalists import next_finalists, shipped


def report(instructions: int, flash: int = 1000) -> FeasibilityReport:
    sizes = {"ram_bytes": 1000, "flash_bytes": flash, "instructions": instructions}
    return FeasibilityReport(feasible=True, backend="x", rung=Rung.EMULATE, **sizes)


def record(task: Task, number: int, accuracy: float, instructions: int, flash: int = 1000) -> Record:
    return Record(
        candidate=Candidate(number=number, hash=f"h{number}"),
        status="ok",
        feasibility=report(instructions, flash),
        training=TrainingSummary(val_accuracy=accuracy),
        aim=task.aim,
    )


def finalist(number: int, accuracy: float, instructions: int = 1, flash: int = 1000, reason: str = "") -> Finalist:
    training = TrainingSummary(val_accuracy=accuracy)
    about = {"training": training, "feasibility": report(instructions, flash), "reason": reason}
    return Finalist(number=number, hash=f"h{number}", **about)


def cheap(task: Task) -> Task:
    return task.replace(objective="instructions", constraints=task.constraints.replace(accuracy=0.98))


def numbers(records: list[Record]) -> list[int]:
    return [one.candidate.number for one in records]


def test_the_most_accurate_are_trained_once_and_no_further_ones(digits_task: Task) -> None:
    records = [record(digits_task, n, 0.9 + n / 100, 1000) for n in range(5)]
    assert numbers(next_finalists(records, [], digits_task, count=2)) == [4, 3]
    assert numbers(next_finalists(records, [finalist(4, 0.9)], digits_task, count=2)) == [3]
    assert next_finalists(records, [finalist(4, 0.9), finalist(3, 0.9)], digits_task, count=2) == []


def test_where_all_are_too_slow_with_trained_weights_the_next_ones_follow(digits_task: Task) -> None:
    records = [record(digits_task, n, 0.9 + n / 100, 1000) for n in range(5)]
    slow = report(1100).replace(feasible=False, violations=(too_slow("", 1100, 1000),))
    done = [finalist(n, 0.99, reason="slow").replace(feasibility=slow) for n in (4, 3)]
    assert numbers(next_finalists(records, done, digits_task, count=2)) == [2, 1]
    assert next_finalists(records, [*done[:1], finalist(3, 0.9)], digits_task, count=2) == []


def test_finalists_teach_which_cheaper_ones_may_be_accurate_enough(digits_task: Task) -> None:
    task = cheap(digits_task)
    records = [
        record(task, 1, 0.95, 4000),  # the proxy's floor is 0.94
        record(task, 2, 0.92, 3000),
        record(task, 3, 0.90, 2000),
        record(task, 4, 0.80, 1000),
        record(task, 5, 0.99, 9000),
    ]
    assert numbers(next_finalists(records, [], task, count=1)) == [1]
    # A fifth of the mistakes remains: 0.01 of 0.05. So one that is wrong 0.1 times may reach 0.98, the cheapest first.
    assert numbers(next_finalists(records, [finalist(1, 0.99)], task, count=1)) == [3]
    # That one fell short: the next has to be more accurate, and cheaper than the first.
    both = [finalist(1, 0.99), finalist(3, 0.97)]
    assert numbers(next_finalists(records, both, task, count=1)) == [2]
    assert next_finalists(records, [*both, finalist(2, 0.985)], task, count=1) == []  # three waves are all
    # Where the first falls short, only a more accurate one can help, whatever it costs: foreseen to be enough or not.
    assert numbers(next_finalists(records, [finalist(1, 0.96)], task, count=1)) == [5]
    assert numbers(next_finalists(records[:4], [finalist(2, 0.90)], task, count=1)) == [1]


def test_the_cheapest_that_keeps_the_floor_wins_else_the_most_accurate(digits_task: Task) -> None:
    task = cheap(digits_task)
    done = [finalist(1, 0.99, 4000), finalist(2, 0.98, 2000), finalist(3, 0.97, 10), finalist(4, 1.0, 5, reason="x")]
    assert shipped(done, task)["winner"].number == 2
    assert shipped(done, digits_task)["winner"].number == 1
    assert shipped(done[2:], task)["winner"].number == 3
    assert shipped(done[3:], task) == {}


def test_three_bundles_are_the_fastest_the_smallest_and_the_most_accurate_that_are_good_enough(
    digits_task: Task,
) -> None:
    task = digits_task.replace(constraints=digits_task.constraints.replace(accuracy=0.9))
    records = [
        record(task, 1, 0.99, 4000, 4000),
        record(task, 2, 0.98, 3500, 3500),
        record(task, 3, 0.85, 1000, 3000),
        record(task, 4, 0.80, 3000, 1000),
        record(task, 5, 0.50, 1, 1),  # far below what a proxy may be
    ]
    assert sorted(numbers(next_finalists(records, [], task, count=3, bundles=3))) == [1, 3, 4]
    done = [finalist(1, 0.99, 4000, 4000), finalist(3, 0.95, 1000, 3000), finalist(4, 0.92, 3000, 1000)]
    found = {name: one.number for name, one in shipped(done, task, bundles=3).items()}
    assert found == {"winner": 1, "fastest": 3, "smallest": 4, "most_accurate": 1}
