"""The page of an arena's run: figures of each setting, and whatever agents and boards said as text."""

import json
from pathlib import Path

from automcu_ray.core.cost import Cost
from automcu_ray.records.attempt import Attempt, Check, Figures, Observation, Verdict
from automcu_ray.records.events import AttemptMade, AttemptObserved
from automcu_ray.records.journal import Repository
from automcu_ray.reports.arena_report import Course, write_report
from tests.searchers.agent.conftest import arena_task

SCRIPT = "<script>alert(1)</script>"


def course(setting: str, folder: Path, objectives: list[float | None]) -> Course:
    journal = Repository()
    for number, objective in enumerate(objectives, start=1):
        journal.append(AttemptMade(attempt=Attempt(number=number, tool_calls=4, refused=(SCRIPT,))))
        found = Observation(
            attempt=number,
            checks=(Check(name="run", passed=objective is not None, detail="" if objective else SCRIPT),),
            figures=Figures(ram_bytes=2912),
            objective=objective,
            serial=(SCRIPT,),
        )
        journal.append(AttemptObserved(observation=found))
    return Course(setting, journal, folder)


def test_a_setting_is_a_row_and_what_was_said_is_text(tmp_path: Path) -> None:
    kept = tmp_path / "iteration_3"
    kept.mkdir()
    (kept / "conversation.jsonl").write_text(json.dumps({"role": "assistant", "content": SCRIPT}) + "\n")
    courses = [
        course("score", tmp_path, [None]),
        course("hil", tmp_path, [None, 9.0, 5.0]),
        course("doc", tmp_path, []),
    ]
    write_report(tmp_path / "report.html", arena_task(), "a model", courses)
    page = (tmp_path / "report.html").read_text()
    assert SCRIPT not in page and "&lt;script&gt;" in page
    row = "<td>hil</td><td>5</td><td>3</td><td>2</td><td>67 %</td><td>4.0</td><td>3</td>"
    assert row in page and "<td>score</td><td>none</td><td>1</td><td>-</td><td>0 %</td>" in page
    assert "<td>doc</td><td>none</td><td>0</td>" in page


def test_an_attempt_that_was_judged_again_counts_once(tmp_path: Path) -> None:
    one = course("hil", tmp_path, [])
    one.journal.append(AttemptObserved(observation=Observation(attempt=1, infrastructure="no board is left")))
    assert one.score == (float("inf"), 0)
    one.journal.append(AttemptObserved(observation=Observation(attempt=1, objective=3.0)))
    assert one.score == (3.0, 1)


def test_the_judges_word_is_shown_and_every_question_to_it_is_paid(tmp_path: Path) -> None:
    one = course("hil", tmp_path, [])
    paid = Cost(prompt_tokens=900, completion_tokens=11)
    one.journal.append(AttemptMade(attempt=Attempt(number=1, cost=Cost(completion_tokens=2))))
    nothing = Observation(attempt=1, infrastructure="judge: no verdict: no connection", judge_cost=paid)
    one.journal.append(AttemptObserved(observation=nothing))
    assert one.score == (float("inf"), 0)  # neither accepted nor counted
    refused = Verdict(verdict="cheating", reason=f"It says {SCRIPT}.")
    check = Check(name="judge", passed=False, detail="a judge calls it cheating")
    found = Observation(attempt=1, checks=(check,), verdict=refused, judge_cost=paid)
    one.journal.append(AttemptObserved(observation=found))
    assert one.score == (float("inf"), 1) and one.spent.tokens == 2 * 911 + 2
    write_report(tmp_path / "report.html", arena_task(), "a model", [one], judge="another model")
    page = (tmp_path / "report.html").read_text()
    assert "judge: another model" in page and "cheating: It says &lt;script&gt;" in page and SCRIPT not in page
    assert "<td>1824</td>" in page
