"""Search dynamics, by numbers worked out by hand."""

import pytest

from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.record import Record, TrainingSummary
from automcu_ray.records.search_dynamics import Trend, trend


def trained(number: int, accuracy: float, name: str | None = None) -> Record:
    candidate = Candidate(number=number, hash=f"network {number}" if name is None else name)
    return Record(candidate=candidate, status="ok", training=TrainingSummary(val_accuracy=accuracy))


def refused(number: int, name: str = "") -> Record:
    return Record(candidate=Candidate(number=number, hash=name), status="infeasible", reason="too large")


def test_one_swap_among_five() -> None:
    """Ranks 1 2 4 3 5: rho = 1 - 6 * 2 / (5 * 24); of ten pairs one is the wrong way round."""
    numbers, accuracies = (1, 2, 4, 7, 9), (0.1, 0.2, 0.4, 0.3, 0.5)
    found = trend([trained(number, accuracy) for number, accuracy in zip(numbers, accuracies, strict=True)])
    assert (found.spearman, found.kendall) == (pytest.approx(0.9), pytest.approx(0.8))
    assert found.kendall_p == pytest.approx(2 * 5 / 120)  # 5 of 120 orders have at most one inversion
    assert found.spearman_p == pytest.approx(0.0374, abs=1e-4)  # t = 0.9 * sqrt(3 / 0.19) = 3.576, 3 degrees
    assert (found.first_accuracy, found.best_accuracy) == (0.1, 0.5)
    assert found.line() == (
        "trained 5 of 5 proposals; accuracy 0.1000 at first, 0.5000 at best; "
        "Spearman +0.90 (p 0.037), Kendall +0.80 (p 0.083)"
    )


def test_a_search_that_got_worse_has_a_negative_trend() -> None:
    found = trend([trained(number, 1 - number / 10) for number in (1, 2, 3, 4)])
    assert (found.spearman, found.kendall) == (pytest.approx(-1), pytest.approx(-1))


def test_the_order_is_that_of_proposals_not_that_in_which_training_ended() -> None:
    found = trend([trained(3, 0.3), trained(1, 0.1), trained(2, 0.2)])
    assert found.spearman == pytest.approx(1)
    assert found.first_accuracy == 0.1


def test_what_was_proposed_and_what_was_distinct() -> None:
    records = [trained(1, 0.5, "a"), refused(2, "b"), trained(3, 0.5, "c"), refused(4, "a"), refused(5)]
    found = trend(records)
    assert (found.outcomes, found.trained, found.success_rate) == (5, 2, 0.4)
    assert (found.distinct_candidates, found.distinct_accuracies) == (3, 1)


@pytest.mark.parametrize(
    ("records", "line"),
    [
        ([], "trained 0 of 0 proposals"),
        ([refused(1)], "trained 0 of 1 proposals"),
        ([trained(1, float("nan"))], "trained 0 of 1 proposals"),
        (
            [trained(1, 0.4), trained(2, 0.6)],
            "trained 2 of 2 proposals; accuracy 0.4000 at first, 0.6000 at best; no trend can be told",
        ),
        (
            [trained(number, 0.5) for number in (1, 2, 3)],
            "trained 3 of 3 proposals; accuracy 0.5000 at first, 0.5000 at best; no trend can be told",
        ),
    ],
    ids=["no records", "nothing trained", "diverged", "two trained", "all equal"],
)
def test_where_no_trend_is_defined_none_is_told(records: list[Record], line: str) -> None:
    found = trend(records)
    assert (found.spearman, found.spearman_p, found.kendall, found.kendall_p) == (None, None, None, None)
    assert found.line() == line
    assert Trend.model_validate_json(found.model_dump_json()) == found
