"""When a search ends: its budgets, and the rules by which it may end before they are used up."""

from dataclasses import dataclass

from automcu_ray.records.record import Record


@dataclass
class Budget:
    """What a search may use: trained candidates, proposals, tokens, US dollars; None: no limit.

    With `enough`, a validation accuracy, it ends as soon as some network has it; with `patience` as soon as so many
    trained candidates, one after the other, were no better than the best before them.
    """

    trained: int | None = None
    proposals: int | None = None
    tokens: int | None = None
    usd: float | None = None
    enough: float | None = None
    patience: int | None = None


class EarlyEnd:
    """Learns from records why a search may end; `reason` is empty while it may not."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.reason = ""
        self._best = float("-inf")
        self._since_best = 0

    def learn(self, record: Record) -> None:
        """Take a record into account; the first reason stands."""
        if record.training is None or self.reason:
            return
        number, enough, patience = record.candidate.number, self.budget.enough, self.budget.patience
        if record.scored and enough is not None and record.accuracy >= enough:
            self.reason = f"the requirement is met: #{number} has {record.accuracy:.4f}, {enough:g} is enough"
            return
        better = record.scored and record.score > self._best
        self._best, self._since_best = (record.score, 0) if better else (self._best, self._since_best + 1)
        if patience is not None and self._since_best >= patience:
            self.reason = f"nothing improves: {patience} trained candidates in a row were no better than the best"
