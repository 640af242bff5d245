"""Whether a search got better as it went on: the search dynamics of paper 002, section 4.1."""

from collections.abc import Sequence

import scipy  # its stats load where they are first used: seconds

from automcu_ray.core.learning import Learning
from automcu_ray.core.models import FrozenModel, Int64
from automcu_ray.records.record import Record

MIN_TRAINED = 3  # two points always correlate


class Trend(FrozenModel):
    """Validation accuracy against the number of the candidate; None where that is not defined.

    `success_rate` is the share of outcomes that were trained; the p-values are two-sided, against no correlation.
    Fewer `distinct_accuracies` than trained candidates hint at networks that differ in name only.
    """

    outcomes: Int64
    trained: Int64
    success_rate: float | None = None
    first_accuracy: float | None = None
    best_accuracy: float | None = None
    spearman: float | None = None
    spearman_p: float | None = None
    kendall: float | None = None
    kendall_p: float | None = None
    distinct_candidates: Int64 = 0
    distinct_accuracies: Int64 = 0

    def line(self, learning: Learning = Learning()) -> str:  # noqa: B008  # frozen
        """Return the trend in words, on one line."""
        if self.first_accuracy is None or self.best_accuracy is None:
            return f"trained {self.trained} of {self.outcomes} proposals"
        first, best = (learning.value_of(score) for score in (self.first_accuracy, self.best_accuracy))
        found = f"{learning.metric} {first:.4f} at first, {best:.4f} at best"
        return f"trained {self.trained} of {self.outcomes} proposals; {found}; {self.correlations()}"

    def correlations(self) -> str:
        """Return both rank correlations of candidate number and accuracy in words."""
        if self.spearman is None or self.kendall is None:
            return "no trend can be told"
        spearman = f"Spearman {self.spearman:+.2f} (p {self.spearman_p:.2g})"
        return f"{spearman}, Kendall {self.kendall:+.2f} (p {self.kendall_p:.2g})"


def trend(records: Sequence[Record]) -> Trend:
    """Return the trend of a run; a network whose accuracy is no number counts as not trained."""
    trained = sorted((record for record in records if record.scored), key=lambda record: record.candidate.number)
    numbers, accuracies = [record.candidate.number for record in trained], [record.accuracy for record in trained]
    correlations = {}
    if len(numbers) >= MIN_TRAINED and len(set(accuracies)) > 1:
        spearman, kendall = scipy.stats.spearmanr(numbers, accuracies), scipy.stats.kendalltau(numbers, accuracies)
        correlations = {
            "spearman": float(spearman.statistic),
            "spearman_p": float(spearman.pvalue),
            "kendall": float(kendall.statistic),
            "kendall_p": float(kendall.pvalue),
        }
    return Trend(
        outcomes=len(records),
        trained=len(trained),
        success_rate=len(trained) / len(records) if records else None,
        first_accuracy=accuracies[0] if trained else None,
        best_accuracy=max(accuracies, default=None),
        distinct_candidates=len({record.candidate.hash for record in records if record.candidate.hash}),
        distinct_accuracies=len(set(accuracies)),
        **correlations,
    )
