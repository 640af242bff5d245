"""A jailed training as the outside sees it: who is right about reports, accuracies and the end is the protocol."""

from typing import Any

import numpy as np

from automcu_ray.core.training_recipe import Protocol
from trainables.datasets.base import Labels
from trainables.jail.conversation import CandidateError
from trainables.training.loop import Epoch


class Progress:
    """Counts the reports of one training: predictions, then their epoch, as often as the protocol says."""

    def __init__(self, protocol: Protocol, val_labels: Labels) -> None:
        self.protocol, self.labels = protocol, val_labels
        self.reports, self.accuracy, self.best, self.since_best = 0, 0.0, 0.0, 0
        self.last, self._waits = False, False

    def report(self, classes: Any) -> bool:
        """Take predictions; return whether they are the best so far, where the protocol has a use for that bit.

        Raises:
            CandidateError: it is not their turn.
        """
        if self._waits or self.last:
            raise _out_of_turn("predictions")
        self.reports, self.accuracy, self._waits = self.reports + 1, _accuracy(classes, self.labels), True
        better = self.accuracy > self.best
        self.best, self.since_best = max(self.best, self.accuracy), 0 if better else self.since_best + 1
        return better and self.protocol.patience is not None

    def epoch(self, loss: Any, *, said_last: bool) -> Epoch:
        """Return the report's epoch; whether it is the last one is worked out here.

        Raises:
            CandidateError: it is not its turn, or the candidate ends where the protocol goes on.
        """
        if not self._waits:
            raise _out_of_turn("an epoch")
        plateau = self.protocol.patience is not None and self.since_best >= self.protocol.patience
        ended = self.reports == self.protocol.reports
        self.last, self._waits = plateau or ended, False
        if said_last != self.last:
            told = f"it should report {self.protocol.reports} times, found {self.reports}"
            raise CandidateError("train", "sandbox", f"the candidate's process ended its training otherwise: {told}")
        number = -(-self.reports // self.protocol.reports_per_epoch)
        known = loss if isinstance(loss, float) else float("nan")
        return Epoch(number, self.accuracy, known, last=self.last, stopped_early=plateau and not ended)


def _accuracy(classes: Any, labels: Labels) -> float:
    """Return the share of class numbers that are right; 0 for what is no list of them."""
    try:
        said = np.asarray(classes, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return float(np.mean(said == labels)) if said.shape == labels.shape else 0.0


def _out_of_turn(what: str) -> CandidateError:
    return CandidateError("train", "sandbox", f"the candidate's process wrote {what} out of turn")
