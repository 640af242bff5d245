"""Which of the trained candidates promise most, and so become finalists."""

from collections.abc import Sequence
from itertools import compress

from automcu_ray.records.rank_correlation import sum_of_ranks
from automcu_ray.records.record import Record


def rank_for_finals(records: Sequence[Record]) -> list[Record]:
    """Return the trained records in the order in which they become finalists: by promise.

    Where the cheapest network is sought, those that are accurate enough come before that, by score.
    """
    trained = [record for record in records if record.scored]
    enough = [record.aim is not None and record.score >= 0 for record in trained]
    first = sorted(compress(trained, enough), key=lambda record: -record.score)
    return [*first, *by_promise([record for record, is_enough in zip(trained, enough, strict=True) if not is_enough])]


def by_promise(trained: Sequence[Record]) -> list[Record]:
    """Return trained records, those first that should be most accurate; the earlier of equals before the other.

    By validation accuracy, where the search ranks by it. Where it ranks by training loss, by the sum of three ranks:
    accuracy, loss and parameters, if these are known of all. After one epoch each of them errs in its own way; the two
    first by their sum lost nothing in five studies (BENCHMARKS.md, "How well proxies rank").
    """
    if not trained or any(record.training and record.training.ranked_by == "accuracy" for record in trained):
        return sorted(trained, key=lambda record: -record.quality)
    criteria: list[Sequence[float]] = [[record.accuracy for record in trained], [record.quality for record in trained]]
    parameters = [record.feasibility.parameters for record in trained if record.feasibility is not None]
    if len(counted := [count for count in parameters if count is not None]) == len(trained):
        criteria.append(counted)
    ranks = sum_of_ranks(*criteria)
    order = sorted(range(len(trained)), key=lambda place: -ranks[place])
    return [trained[place] for place in order]
