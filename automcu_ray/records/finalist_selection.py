"""Which of the trained candidates promise most, and so become finalists."""

from collections.abc import Sequence

from automcu_ray.records.rank_correlation import sum_of_ranks
from automcu_ray.records.record import Record


def rank_for_finals(records: Sequence[Record]) -> list[Record]:
    """Return the trained records, the most promising first; the earlier of equals before the other.

    By score, where that is accuracy. Where the search ranks by training loss, by the sum of three ranks: accuracy, loss
    and parameters, if these are known of all. After one epoch each of them errs in its own way; the two first by
    their sum lost nothing in five studies (BENCHMARKS.md, "How well proxies rank"). By score in any case where the
    cheapest network is sought.
    """
    trained = [record for record in records if record.scored]
    sought = any(record.aim is not None for record in trained)
    if not trained or sought or any(record.training and record.training.ranked_by == "accuracy" for record in trained):
        return sorted(trained, key=lambda record: -record.score)
    criteria: list[Sequence[float]] = [[record.accuracy for record in trained], [record.score for record in trained]]
    parameters = [record.feasibility.parameters for record in trained if record.feasibility is not None]
    if len(counted := [count for count in parameters if count is not None]) == len(trained):
        criteria.append(counted)
    ranks = sum_of_ranks(*criteria)
    order = sorted(range(len(trained)), key=lambda place: -ranks[place])
    return [trained[place] for place in order]
