"""The results of a study, from measurements made up so that every figure is known."""

import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.record import Measured, Score
from automcu_ray.studies.fidelity import FULL, Subject
from automcu_ray.studies.fidelity_report import Row, best, noise, rows, write

ACCURACIES = {1: 0.3, 2: 0.4, 3: 0.5, 4: 0.6, 5: 0.7, 6: 0.8}
SUBJECTS = [
    Subject(candidate=Candidate(number=number, hash=f"{number}"), parameters=100 * number, macs=700 - number, depth=2)
    for number in ACCURACIES
]


def measured(
    number: int, probe: str, repeat: int, scores: dict[str, float], seconds: float, failure: str = ""
) -> Measured:
    found = tuple(Score(proxy=probe, reading=name, value=value, seconds=seconds) for name, value in scores.items())
    key = f"{number} {probe} {repeat}"
    return Measured(key=key, number=number, probe=probe, repeat=repeat, scores=found, failure=failure)


def full(repeat: int = 1, shift: float = 0.0, numbers: tuple[int, ...] = tuple(ACCURACIES)) -> list[Measured]:
    return [measured(n, FULL, repeat, {"deployed": ACCURACIES[n] + shift}, 100.0) for n in numbers]


def short(values: dict[int, float], seconds: float = 5.0, name: str = "short") -> list[Measured]:
    return [measured(number, name, 0, {"float": value}, seconds) for number, value in values.items()]


def find(found: list[Row], proxy: str, fusion: str = "alone") -> Row:
    (row,) = (row for row in found if (row.proxy, row.fusion) == (proxy, fusion))
    return row


def test_a_proxy_is_ranked_alone_and_with_each_size() -> None:
    # Two neighbours change places: Spearman is 1 - 6 * 2 / (6 * 35), and 14 of 15 pairs agree: 13 / 15.
    found = rows(SUBJECTS, [*full(), *short({1: 0.1, 2: 0.3, 3: 0.2, 4: 0.4, 5: 0.5, 6: 0.6})])
    alone = find(found, "short")
    assert (alone.spearman.value, alone.kendall.value) == (pytest.approx(1 - 12 / 210), pytest.approx(13 / 15))
    assert (alone.networks, alone.cost, alone.lost) == (6, pytest.approx(0.05), 0)
    assert find(found, "short", "parameters").spearman.value > alone.spearman.value
    assert find(found, "short", "MACs").spearman.value < alone.spearman.value
    assert (find(found, "parameters").spearman.value, find(found, "MACs").spearman.value) == (1, -1)
    assert find(found, "MACs").lost == pytest.approx(0.8 - 0.4)  # the two that rank first have 0.3 and 0.4


def test_a_network_whose_training_failed_ranks_last_and_one_not_measured_yet_is_left_out() -> None:
    values = {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4, 6: 0.6}
    without = find(rows(SUBJECTS, [*full(), *short(values)]), "short")
    failure = measured(5, "short", 0, {}, 0.0, failure="diverged")
    failed = find(rows(SUBJECTS, [*full(), *short(values), failure]), "short")
    assert (without.networks, without.spearman.value) == (5, pytest.approx(1))
    assert (failed.networks, failed.cost) == (6, without.cost)
    assert failed.spearman.value == pytest.approx(1 - 6 * (4 * 1 + 16) / 210)  # ranks 2 3 4 5 1 6 against 1 to 6


def test_full_training_that_failed_is_an_accuracy_of_nothing() -> None:
    lost = measured(6, FULL, 1, {}, 0.0, failure="diverged")
    found = rows(SUBJECTS, [*full(numbers=(1, 2, 3, 4, 5)), lost, *short({n: a for n, a in ACCURACIES.items()})])
    assert find(found, "short").networks == 6
    assert find(found, "short").spearman.value < 0.2


def test_noise_comes_from_networks_trained_twice() -> None:
    found = noise([*full(), *full(repeat=2, shift=0.02, numbers=(2, 4))])
    assert found is not None
    variance = sum((a - 0.55) ** 2 for a in ACCURACIES.values()) / 5
    assert (found.networks, found.deviation) == (2, pytest.approx(0.02 / math.sqrt(2)))
    assert found.ceiling == pytest.approx(math.sqrt(1 - 0.0002 / variance))
    assert noise(full()) is None


def test_the_best_is_sought_among_what_costs_a_tenth_at_most_and_ranks_all_networks() -> None:
    good, dear = ACCURACIES | {6: 0.65}, ACCURACIES
    part = {n: a for n, a in ACCURACIES.items() if n < 6}
    measurements = [*full(), *short(good, 10.0, "cheap"), *short(dear, 10.1, "dear"), *short(part, 1.0, "begun")]
    found = rows(SUBJECTS, measurements)
    top = best([row for row in found if row.proxy in ("cheap", "dear", "begun") and row.fusion == "alone"])
    assert top is not None and top.proxy == "cheap"


def test_results_are_a_table_a_page_and_two_parquet_files(tmp_path: Path) -> None:
    scored = [*full(), *full(repeat=2, shift=0.01, numbers=(1, 6)), *short(ACCURACIES)]
    text = write(tmp_path, "six <networks>", SUBJECTS, scored)
    assert "| short | float | 6 | 5.00 | 1.00 (" in text
    assert (tmp_path / "table.md").read_text() == text
    results = pq.read_table(tmp_path / "results.parquet").to_pylist()
    assert {("short", "alone", 6), ("short", "parameters", 6)} <= {
        (row["proxy"], row["fusion"], row["networks"]) for row in results
    }
    scores = pq.read_table(tmp_path / "scores.parquet").to_pylist()
    assert len(scores) == 6 + 2 + 6
    assert scores[0] == {
        "network": 1, "parameters": 100, "macs": 699, "depth": 2, "repeat": 1, "proxy": "full", "reading": "deployed",
        "value": 0.3, "seconds": 100.0,
    }  # fmt: skip
    page = (tmp_path / "index.html").read_text()
    assert "six &lt;networks&gt;" in page and page.count("<svg") == 1 and "<td>short</td>" in page


def test_a_study_cut_short_at_once_has_empty_results(tmp_path: Path) -> None:
    assert "proxy" in write(tmp_path, "nothing yet", SUBJECTS, [])
    assert "<svg" in (tmp_path / "index.html").read_text()
