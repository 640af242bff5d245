"""The feedback memory of paper 002, section 3.4: the last K diagnostic triples, best and current record."""

from automcu_ray.core.models import FrozenModel
from automcu_ray.networks.candidate import Candidate, Diagnosis
from automcu_ray.records.record import Record

PROBLEM_CHARS, SUGGESTION_CHARS, OUTCOME_CHARS = 300, 300, 200


class Memory(FrozenModel):
    """What the improver may know: its size does not grow with the run, unless `size` is None (an ablation).

    Every record enters, whatever became of it, for a refusal teaches as much as an accuracy. The one
    exception is a candidate that never was because its engine failed.

    Attributes:
        size: K, how many records `recent` keeps.
        top_size: how many records `top` keeps, best first.
        since_best: trained candidates since `best`.
    """

    size: int | None = 5
    top_size: int = 1
    top: tuple[Record, ...] = ()
    current: Record | None = None
    recent: tuple[Record, ...] = ()
    trained: int = 0
    since_best: int = 0

    @property
    def best(self) -> Record | None:
        """The trained record with the highest score; the earlier one of equals."""
        return self.top[0] if self.top else None

    @property
    def history(self) -> tuple[Diagnosis, ...]:
        """The diagnostic triples of the recent records, oldest first."""
        return tuple(triple(record) for record in self.recent)

    @property
    def reference(self) -> tuple[Candidate | None, Record | None]:
        """The network to work from and its record: the best, else the current one; None while there is neither."""
        for record in (self.best, self.current):
            if record is not None and record.candidate.network is not None:
                return record.candidate, record
        return None, None

    def after(self, record: Record) -> "Memory":
        """Return the memory with one record more; all records in order rebuild it for a resumed run."""
        if record.engine_failed:
            return self
        recent = (*self.recent, record)
        changes: dict[str, object] = {
            "current": record,
            "recent": recent if self.size is None else recent[max(0, len(recent) - self.size) :],
        }
        if record.status == "ok":
            better = self.best is None or record.score > self.best.score
            ranked = sorted((*self.top, record), key=lambda one: -one.score)  # stable: the earlier of equals stays
            changes["trained"] = self.trained + 1
            changes["since_best"] = 0 if better else self.since_best + 1
            changes["top"] = tuple(ranked[: self.top_size])
        return self.replace(**changes)


def triple(record: Record) -> Diagnosis:
    """Return the (problem, suggestion, outcome) of a record, cut to bounded size."""
    mine = record.candidate.diagnosis or Diagnosis(problem="", suggestion="")
    return Diagnosis(
        problem=mine.problem[:PROBLEM_CHARS],
        suggestion=mine.suggestion[:SUGGESTION_CHARS],
        outcome=record.outcome()[:OUTCOME_CHARS],
    )
