from automcu_ray.feasibility import Rung, Violation
from automcu_ray.record import Candidate, Diagnosis, Record, Status, TrainingSummary
from searchers.memory import Memory


def record(number: int, status: Status, score: float | None = None, text: str = "x") -> Record:
    diagnosis = Diagnosis(problem=f"p{number} {text}", suggestion=f"s{number} {text}")
    training = None if score is None else TrainingSummary(val_accuracy=score)
    candidate = Candidate(number=number, diagnosis=diagnosis)
    return Record(candidate=candidate, status=status, reason=f"because {text}", training=training)


def remember(*records: Record, size: int = 5) -> Memory:
    memory = Memory(size=size)
    for item in records:
        memory = memory.after(item)
    return memory


def test_window_holds_the_last_k_and_failures_like_any_other() -> None:
    statuses: list[Status] = ["ok", "infeasible", "invalid", "duplicate", "failed", "infeasible"]
    memory = remember(*(record(number, status) for number, status in enumerate(statuses)))
    assert [item.problem for item in memory.history] == ["p1 x", "p2 x", "p3 x", "p4 x", "p5 x"]
    assert [item.outcome.split(":")[0] for item in memory.history] == statuses[1:]
    assert memory.current == record(5, "infeasible")


def test_best_is_the_highest_score_and_the_earlier_of_equals() -> None:
    memory = remember(record(1, "ok", 0.5), record(2, "ok", 0.9), record(3, "failed"), record(4, "ok", 0.9))
    assert memory.best == record(2, "ok", 0.9)
    assert (memory.trained, memory.since_best) == (3, 1)


def test_entries_are_cut_to_300_300_and_200_characters() -> None:
    memory = remember(record(1, "failed", text="y" * 5000))
    entry = memory.history[0]
    assert (len(entry.problem), len(entry.suggestion), len(entry.outcome)) == (300, 300, 200)


def test_a_memory_of_zero_entries_is_the_ablation_without_history() -> None:
    memory = remember(record(1, "ok", 0.5), record(2, "failed"), size=0)
    assert memory.history == ()
    assert memory.current == record(2, "failed")


def test_an_engine_failure_says_nothing_about_networks() -> None:
    violation = Violation(rung=Rung.SCHEMA, resource="engine", message="engine: timeout")
    failed = Record(candidate=Candidate(number=1, violations=(violation,)), status="invalid")
    assert remember(failed) == Memory()
