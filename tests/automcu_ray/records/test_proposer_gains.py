from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.proposer_gains import ProposerGains
from automcu_ray.records.record import Record, Status, TrainingSummary


def record(proposer: str, accuracy: float | None = None, status: Status = "ok") -> Record:
    training = None if accuracy is None else TrainingSummary(val_accuracy=accuracy)
    return Record(candidate=Candidate(proposer=proposer), status=status, training=training)


def test_gains_are_rises_of_the_best_and_the_first_is_none() -> None:
    credits = ProposerGains()
    outcomes = [("a", 0.5), ("b", 0.75), ("a", 0.625), ("a", 0.875)]
    assert [credits.add(record(name, accuracy)) for name, accuracy in outcomes] == [0.0, 0.25, 0.0, 0.125]
    assert credits.line() == "gains by proposer: b +0.2500 (1 trained of 1), a +0.1250 (3 trained of 3)"


def test_refused_broken_and_diverged_candidates_gain_nothing() -> None:
    credits = ProposerGains([record("a", 0.5)])
    refused = record("a", status="infeasible")
    in_vain = record("a", 0.9, status="infeasible")  # trained, but too large
    assert [credits.add(one) for one in (refused, in_vain, record("a", float("nan")))] == [0.0, 0.0, 0.0]
    assert (credits.best, credits.by_proposer["a"].proposals, credits.by_proposer["a"].trained) == (0.5, 4, 1)


def test_one_proposer_alone_needs_no_line() -> None:
    assert ProposerGains([record("a", 0.5), record("a", 0.6)]).line() == ""
