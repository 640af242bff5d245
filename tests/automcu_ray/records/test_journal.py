"""The journal: nothing finished is lost, whatever kills the process."""

import resource
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.events import Searched
from automcu_ray.records.journal import Repository
from automcu_ray.records.record import Record, TrainingSummary, best


def candidate(number: int) -> Candidate:
    return Candidate(number=number, hash=f"h{number}", proposer="test")


def trained(number: int, score: float) -> Record:
    return Record(candidate=candidate(number), status="ok", training=TrainingSummary(val_accuracy=score))


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    first = Repository(tmp_path / "journal.jsonl")
    violation = Violation(rung=Rung.LINK, resource="ram", found_bytes=10, limit_bytes=8, message="ram: 2 over")
    report = FeasibilityReport(feasible=False, backend="x", rung=Rung.LINK, violations=(violation,))
    for number in (1, 2, 3):
        first.propose(candidate(number))
    first.add(trained(1, 0.5))
    first.add(Record(candidate=candidate(2), status="infeasible", reason="2 over", feasibility=report))
    first.append(Searched(seconds=1.5))
    again = Repository(tmp_path / "journal.jsonl")
    assert again.records == first.records
    assert again.records[1].feasibility == report
    assert [c.number for c in again.pending()] == [3]
    assert again.last(Searched) == Searched(seconds=1.5)


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_line_cut_short_is_dropped_and_the_next_one_is_whole(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal.jsonl"
    repository = Repository(path)
    repository.add(trained(1, 0.5))
    repository.add(trained(2, 0.6))
    path.write_bytes(path.read_bytes()[:-cut])
    survivor = Repository(path)
    assert [record.candidate.number for record in survivor.records] == [1]
    survivor.add(trained(3, 0.7))
    assert [record.candidate.number for record in Repository(path).records] == [1, 3]


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"event":"started"}\nrubbish\n{"event":"searched"}\n')
    with pytest.raises(ConfigError, match="line 2"):
        Repository(path)


def test_parquet_has_a_row_a_record_and_none_for_what_was_not_measured(tmp_path: Path) -> None:
    repository = Repository()
    repository.add(trained(1, 0.5))
    repository.add(Record(candidate=candidate(2), status="invalid", reason="no JSON"))
    repository.write_parquet(tmp_path / "records.parquet")
    rows = pq.read_table(tmp_path / "records.parquet").to_pylist()
    found = [(row["number"], row["status"], row["val_accuracy"], row["ram_bytes"]) for row in rows]
    assert found == [(1, "ok", 0.5, None), (2, "invalid", None, None)]


def test_best_is_the_earlier_of_equals_and_none_without_training() -> None:
    assert best([]) is None
    top = best([trained(1, 0.5), trained(2, 0.7), trained(3, 0.7)])
    assert top is not None and top.candidate.number == 2


def test_best_by_loss_is_not_the_one_of_highest_accuracy() -> None:
    lucky = TrainingSummary(val_accuracy=0.8, train_loss=0.7, ranked_by="loss")
    sound = TrainingSummary(val_accuracy=0.7, train_loss=0.5, ranked_by="loss")
    records = [Record(candidate=candidate(n), status="ok", training=t) for n, t in enumerate((lucky, sound), start=1)]
    top = best(records)
    assert top is not None and (top.accuracy, top.score) == (0.7, pytest.approx(0.6065, abs=1e-4))  # e^-0.5
    assert lucky.score < sound.score < lucky.val_accuracy


def test_a_loss_that_nobody_measured_ranks_nothing() -> None:
    assert TrainingSummary(val_accuracy=0.8, ranked_by="loss").score == 0.8


def test_a_line_that_was_written_twice_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    repository = Repository(path)
    repository.propose(candidate(1), candidate(2))
    repository.add(trained(1, 0.5))
    path.write_text(path.read_text() * 2)
    again = Repository(path)
    assert ([record.accuracy for record in again.records], [c.number for c in again.pending()]) == ([0.5], [2])


def test_a_record_whose_proposal_is_lost_keeps_its_number(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "journal.jsonl")
    repository.add(trained(3, 0.5))
    again = Repository(tmp_path / "journal.jsonl")
    assert (list(again.proposed), again.pending()) == ([3], [])


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"event":"record","record":{"candidate":{"number":1' + "0" * 30 + '},"status":"ok"}}',
        '{"event":"record","record":{"candidate":{"number":1' + "0" * 5000 + '},"status":"ok"}}',
        '{"event":"record","record":{"candidate":{"number":1},"status":"ok","reason":"\\ud800"}}',
        "\xff",
    ],
    ids=["brackets", "no 64 bits", "5000 digits", "half a character", "no UTF-8"],
)
def test_a_line_that_nobody_of_us_wrote_is_an_error_that_names_it(tmp_path: Path, line: str) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b'{"event":"started"}\n' + line.encode("latin-1") + b"\n")
    with pytest.raises(ConfigError, match="line 2 is not a journal event"):
        Repository(tmp_path / "journal.jsonl")


def test_a_disk_that_is_full_in_mid_line_costs_that_line_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository(tmp_path / "journal.jsonl")
    repository.add(trained(1, 0.5))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "journal.jsonl").stat().st_size + 20, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: .*journal\.jsonl"):
            repository.add(trained(2, 0.6))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [record.candidate.number for record in repository.records] == [1]
    repository.add(trained(3, 0.7))
    assert [record.candidate.number for record in Repository(tmp_path / "journal.jsonl").records] == [1, 3]


def test_a_number_of_more_than_32_bits_stands_in_the_parquet(tmp_path: Path) -> None:
    repository = Repository()
    repository.add(trained(2**32, 0.5))
    repository.write_parquet(tmp_path / "records.parquet")
    assert pq.read_table(tmp_path / "records.parquet")["number"].to_pylist() == [2**32]
