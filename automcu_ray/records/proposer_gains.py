"""Who gained what in a run: proposals, trained candidates and gains by proposer."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from automcu_ray.records.record import Record


@dataclass
class ProposerGain:
    """What came of one proposer; `gain` is in what the search ranks by, a share of 1."""

    proposals: int = 0
    trained: int = 0
    gain: float = 0.0


class ProposerGains:
    """Gains by proposer, record by record in the order in which they came in.

    A gain is by how much a record raises the best score of the run so far: validation accuracy, unless the search ranks
    by loss. The run's first score is no gain: there is nothing that it could be compared with.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.best: float | None = None
        self.by_proposer: dict[str, ProposerGain] = defaultdict(ProposerGain)
        for record in records:
            self.add(record)

    def add(self, record: Record) -> float:
        """Count one record; return its gain."""
        mine = self.by_proposer[record.candidate.proposer]
        mine.proposals += 1
        if not record.scored:
            return 0.0
        mine.trained += 1
        gain = 0.0 if self.best is None else max(0.0, record.score - self.best)
        self.best = record.score if self.best is None else max(self.best, record.score)
        mine.gain += gain
        return gain

    def line(self) -> str:
        """Return the gains as one line; "" where there was one proposer only."""
        if len(self.by_proposer) < 2:
            return ""
        parts = [
            f"{name} +{mine.gain:.4f} ({mine.trained} trained of {mine.proposals})"
            for name, mine in sorted(self.by_proposer.items(), key=lambda item: -item[1].gain)
        ]
        return f"gains by proposer: {', '.join(parts)}"
