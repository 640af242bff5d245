import json
from typing import Any

import pytest

from automcu_ray.core.feasibility import Rung, Violation
from automcu_ray.networks.candidate import Candidate, Diagnosis
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record, Status, TrainingSummary
from automcu_ray.runtime.plugins import check_options
from automcu_ray.testing.searcher_contract import drive
from searchers.dialogue.feedback_memory import Memory
from searchers.engines.base import Request
from searchers.llm_memory import LLMMemory
from searchers.tune_searchers import LLMMemorySearch
from tests.searchers.sections import read_sections
from tests.searchers.test_llm_memory import Scripted, answer_well


def record(number: int, status: Status, score: float | None = None, text: str = "x") -> Record:
    diagnosis = Diagnosis(problem=f"p{number} {text}", suggestion=f"s{number} {text}")
    training = None if score is None else TrainingSummary(val_accuracy=score)
    candidate = Candidate(number=number, diagnosis=diagnosis)
    return Record(candidate=candidate, status=status, reason=f"because {text}", training=training)


def remember(*records: Record, size: int = 5) -> Memory:
    memory = Memory(size=size)
    for item in records:
        memory = memory.after(item)
    return memory


def test_window_holds_the_last_k_and_failures_like_any_other() -> None:
    statuses: list[Status] = ["ok", "infeasible", "invalid", "duplicate", "failed", "infeasible"]
    memory = remember(*(record(number, status) for number, status in enumerate(statuses)))
    assert [item.problem for item in memory.history] == ["p1 x", "p2 x", "p3 x", "p4 x", "p5 x"]
    assert [item.outcome.split(":")[0] for item in memory.history] == statuses[1:]
    assert memory.current == record(5, "infeasible")


def test_best_is_the_highest_score_and_the_earlier_of_equals() -> None:
    memory = remember(record(1, "ok", 0.5), record(2, "ok", 0.9), record(3, "failed"), record(4, "ok", 0.9))
    assert memory.best == record(2, "ok", 0.9)
    assert (memory.trained, memory.since_best) == (3, 1)


def test_entries_are_cut_to_300_300_and_200_characters() -> None:
    memory = remember(record(1, "failed", text="y" * 5000))
    entry = memory.history[0]
    assert (len(entry.problem), len(entry.suggestion), len(entry.outcome)) == (300, 300, 200)


def test_a_memory_of_zero_entries_is_the_ablation_without_history() -> None:
    memory = remember(record(1, "ok", 0.5), record(2, "failed"), size=0)
    assert memory.history == ()
    assert memory.current == record(2, "failed")


def test_an_engine_failure_says_nothing_about_networks() -> None:
    violation = Violation(rung=Rung.SCHEMA, resource="engine", message="engine: timeout")
    failed = Record(candidate=Candidate(number=1, violations=(violation,)), status="invalid")
    assert remember(failed) == Memory()


def test_top_holds_the_best_first_and_the_earlier_of_equals() -> None:
    memory = Memory(top_size=2)
    for item in (record(1, "ok", 0.5), record(2, "ok", 0.9), record(3, "ok", 0.5), record(4, "ok", 0.9)):
        memory = memory.after(item)
    assert [item.candidate.number for item in memory.top] == [2, 4]


class TestAblations:
    """What the last of seven conversations was asked, by the options that a configuration gives."""

    def asked(self, task: Task, **options: Any) -> list[Request]:
        engine = Scripted(answer_well, instant=True)
        plain = {"notation": "json", "ask_after": 0, "mend": 0}  # the form of the paper
        checked = check_options("searcher", "llm_memory", LLMMemory, {**plain, **options})
        searcher = LLMMemorySearch(task, engine=engine, **checked)
        searcher.lookahead, searcher.budget.trained = 1, 7
        drive(searcher, 7)
        return engine.asked

    def last(self, task: Task, role: str, **options: Any) -> dict[str, Any]:
        asked = [request for request in self.asked(task, **options) if request.role == role]
        return read_sections(asked[-1].messages)

    @pytest.mark.parametrize(("memory", "entries"), [(5, 5), (3, 3), (0, 0), ("all", 6), ("2", 2)])
    def test_memory_is_how_many_triples_the_improver_reads(self, task: Task, memory: int | str, entries: int) -> None:
        history = self.last(task, "improver", memory=memory)["History"]
        assert len(history) == entries
        assert all(entry["outcome"].startswith("accuracy") for entry in history)

    def test_without_an_improver_the_generator_reads_the_history(self, task: Task) -> None:
        asked = self.asked(task, improver=False)
        assert [request.role for request in asked] == ["generator"] * 7
        sections = self.last(task, "generator", improver=False)
        assert len(sections["History"]) == 5 and sections["Suggestion"] is None
        assert sections["Current result"]["status"] == "ok"

    def test_without_a_reference_none_is_shown_to_either_role(self, task: Task) -> None:
        for role in ("improver", "generator"):
            assert self.last(task, role, reference=False)["Reference architecture"] is None
            assert self.last(task, role)["Reference architecture"] is not None

    def test_shared_context_is_one_transcript_that_grows(self, task: Task) -> None:
        asked = [request for request in self.asked(task, shared_context=True) if request.role == "generator"]
        sizes = [len(request.messages) for request in asked]
        assert sizes == [2, 4, 6, 8, 10, 12, 14]  # an opening, two messages a record; the last one joins the question
        said = [json.loads(message.content) for message in asked[-1].messages[2::2]]
        assert [one["spec"]["backbone"][0]["type"] for one in said] == ["conv"] * 6

    def test_top_n_shows_the_next_best_networks_and_the_last_attempts(self, task: Task) -> None:
        plain, extended = self.last(task, "generator"), self.last(task, "generator", top_n=3)
        added = set(extended) - set(plain)
        assert {"Number 2 architecture", "Number 3 architecture", "Attempt 2 result", "Attempt 6 result"} <= added
        assert "Number 4 architecture" not in extended and "Attempt 1 result" not in extended
        accuracies = [extended[f"{name} result"]["accuracy"] for name in ("Reference", "Number 2", "Number 3")]
        assert accuracies == sorted(accuracies, reverse=True)
