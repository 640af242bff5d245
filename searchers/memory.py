"""The feedback memory of paper 002, section 3.4: the last K diagnostic triples, best and current record."""

from automcu_ray.record import Diagnosis, Record
from automcu_ray.target import Frozen

PROBLEM_CHARS, SUGGESTION_CHARS, OUTCOME_CHARS = 300, 300, 200


class Memory(Frozen):
    """What the improver may know: its size does not grow with the run.

    Every record enters, whatever became of it, for a refusal teaches as much as an accuracy. The one
    exception is a candidate that never was because its engine failed. `since_best` counts the trained
    candidates since `best`.
    """

    size: int = 5
    best: Record | None = None
    current: Record | None = None
    history: tuple[Diagnosis, ...] = ()
    trained: int = 0
    since_best: int = 0

    def after(self, record: Record) -> "Memory":
        """Return the memory with one record more; all records in order rebuild it for a resumed run."""
        if any(violation.resource == "engine" for violation in record.candidate.violations):
            return self
        history = (*self.history, triple(record))
        changes: dict[str, object] = {
            "current": record,
            "history": history[max(0, len(history) - self.size) :],
        }
        if record.status == "ok":
            better = self.best is None or record.score > self.best.score
            changes["trained"] = self.trained + 1
            changes["since_best"] = 0 if better else self.since_best + 1
            changes["best"] = record if better else self.best
        return self.model_copy(update=changes)


def triple(record: Record) -> Diagnosis:
    """Return the (problem, suggestion, outcome) of a record, cut to bounded size."""
    mine = record.candidate.diagnosis or Diagnosis(problem="", suggestion="")
    return Diagnosis(
        problem=mine.problem[:PROBLEM_CHARS],
        suggestion=mine.suggestion[:SUGGESTION_CHARS],
        outcome=record.outcome()[:OUTCOME_CHARS],
    )
