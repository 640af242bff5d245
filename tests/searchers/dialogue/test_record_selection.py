"""Which records a proposal agent sees, by examples worked out by hand."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from automcu_ray.core.feasibility import Change, Rung, Violation
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.records.record import Record, TrainingSummary
from searchers.dialogue import record_selection
from searchers.dialogue.prompts import transcript
from searchers.dialogue.record_selection import CHARS_PER_TOKEN, pareto_front, select, summary
from tests.searchers.conftest import refused, trained

pytestmark = pytest.mark.thorough

SPEC = ArchitectureSpec.model_validate({"backbone": [{"type": "conv", "out_channels": 8}]})


def ok(number: int, accuracy: float, ram: int | None, flash: int | None) -> Record:
    return trained(Candidate(number=number, spec=SPEC), accuracy, ram_bytes=ram, flash_bytes=flash)


def over(number: int, *found: tuple[int, int]) -> Record:
    """A candidate refused for (found, limit) bytes; without any, for an operator."""
    violations = [
        Violation(rung=Rung.LINK, resource="ram", found_bytes=size, limit_bytes=limit, message="overflowed")
        for size, limit in found
    ] or [Violation(rung=Rung.CONVERT, resource="operator", message="no such operator")]
    return refused(Candidate(number=number, spec=SPEC), *violations)


def repeat(number: int) -> Record:
    return Record(candidate=Candidate(number=number, spec=SPEC), status="duplicate", reason="equals candidate 1")


def numbers(records: list[Record]) -> list[int]:
    return [record.candidate.number for record in records]


def shown(records: list[Record], tokens: int = 10_000) -> dict[str, list[int]]:
    return {title: numbers(found) for title, found in select(records, tokens).items()}


def test_a_summary_says_once_what_would_fit() -> None:
    fix = Change(where="layer_4.out_channels", before=64, after=41)
    record = over(1, (120, 100), (130, 100))
    assert record.feasibility is not None
    both = tuple(violation.model_copy(update={"fix": fix}) for violation in record.feasibility.violations)
    taught = record.model_copy(update={"feasibility": record.feasibility.model_copy(update={"violations": both})})
    assert record_selection.summary(taught)["fix"] == "layer_4.out_channels 64 -> 41"
    assert "fix" not in record_selection.summary(record)


def test_pareto_front_keeps_whatever_no_other_equals_or_beats_in_all_three() -> None:
    records = [
        ok(1, 0.90, 100, 100),
        ok(2, 0.95, 200, 200),
        ok(3, 0.90, 90, 150),  # less RAM than 1, more Flash
        ok(4, 0.89, 100, 100),  # 1 beats it
        ok(5, 0.95, 200, 200),  # equals 2, which came first
        ok(6, 0.94, 250, 150),  # more RAM than 2, less Flash
        ok(7, 0.50, 10, 10),  # the smallest
        over(8, (300, 250)),
    ]
    assert numbers(pareto_front(records)) == [2, 6, 3, 1, 7]


def test_without_sizes_the_most_accurate_ones_stand_in_for_the_front() -> None:
    records = [ok(1, 0.5, None, None), ok(2, 0.7, None, None), ok(3, 0.6, None, None)]
    assert pareto_front(records) == []
    assert shown(records)["Best and Pareto front"][0] == 2


def test_nearest_misses_come_by_their_share_of_the_limit_and_the_later_of_equals_first() -> None:
    records = [
        over(1, (150, 100)),  # 50 % over
        over(2, (1100, 1000)),  # 10 % over, though by more bytes than most
        over(3, (105, 100), (110, 100)),  # 10 % at worst
        over(4),  # not a question of bytes
        over(5, (110, 100)),  # 10 % over
    ]
    assert numbers(record_selection.by_heading(records)["Nearest misses"]) == [5, 3, 2, 1, 4]


def test_headings_take_turns_and_each_record_is_shown_once() -> None:
    records = [ok(1, 0.9, 100, 100), over(2, (150, 100)), repeat(3), ok(4, 0.8, 200, 200)]
    assert shown(records) == {
        "Best and Pareto front": [1],
        "Nearest misses": [2],
        "Repeats, refused because they had been tried": [3],
        "Latest": [4],
    }


def test_a_budget_too_small_for_all_goes_to_the_best_of_each_heading() -> None:
    records = [ok(n, n / 100, 1000 + n, 100) for n in range(1, 20)]
    records += [over(n, (200 - n, 100)) for n in range(20, 40)]
    four = sum(len(json.dumps(record_selection.summary(records[number - 1]))) for number in (18, 19, 38, 39))
    assert shown(records, tokens=four // CHARS_PER_TOKEN + 1) == {
        "Best and Pareto front": [19, 18],
        "Nearest misses": [39, 38],
    }


@pytest.mark.parametrize("tokens", [0, 100, 1000, 3000])
def test_what_is_shown_keeps_within_the_budget(tokens: int) -> None:
    records = [ok(n, n / 1000, 1000 + n, 1000 - n) for n in range(1, 300)]
    entries = [entry for found in select(records, tokens).values() for entry in found]
    size = sum(len(json.dumps(summary(entry))) for entry in entries)
    assert size <= tokens * CHARS_PER_TOKEN
    assert size > (tokens - 100) * CHARS_PER_TOKEN  # and leaves no room for another one


def test_no_records_are_shown_as_nothing() -> None:
    assert select([], 1000) == record_selection.everything([]) == {}


def test_a_record_whose_reply_could_not_be_read_is_shown_by_its_reason() -> None:
    record = Record(candidate=Candidate(number=1), status="invalid", reason="y" * 1000)
    assert record_selection.summary(record) == {"candidate": 1, "status": "invalid", "reason": "y" * 160}


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """Simulated searches and their prompts."""
    path = Path(__file__).parents[3] / "benchmarks" / "bench_prompts.py"
    spec = importlib.util.spec_from_file_location("bench_prompts", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "seeds"), [("llm", 1), ("llm_memory", 3)])  # one shows many networks, one a few
def test_prompts_of_iterations_10_and_500_are_about_as_long(bench: ModuleType, name: str, seeds: int) -> None:
    early, late = (bench.mean_tokens(name, iteration, len, seeds) for iteration in (10, 500))
    assert 0.9 * early < late < (1.05 if name == "llm" else 1.1) * early  # a short prompt: counts get more digits


@pytest.mark.parametrize(
    "name", ["llm, context all", "llm, context shared", "llm_memory, memory all", "llm_memory, shared context"]
)
def test_ablations_that_keep_everything_grow_more_than_fivefold(bench: ModuleType, name: str) -> None:
    early, late = (bench.prompt_tokens(name, iteration, len) for iteration in (10, 500))
    assert late > 5 * early


def test_a_search_that_ranks_by_loss_says_it_in_every_context() -> None:
    by_loss = TrainingSummary(val_accuracy=0.61234, train_loss=1.23456, ranked_by="loss")
    for training, said in ((by_loss, True), (by_loss.model_copy(update={"ranked_by": "accuracy"}), False)):
        record = Record(candidate=Candidate(number=1), status="ok", training=training)
        assert summary(record).get("training_loss") == (1.235 if said else None)
        assert summary(record)["accuracy"] == 0.6123
        assert ("train_loss" in transcript([record])[-1].content) is said
