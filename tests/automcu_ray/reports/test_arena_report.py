"""The page of an arena's run: figures of each setting, and whatever agents and boards said as text."""

import json
from pathlib import Path

from automcu_ray.records.attempt import Attempt, Check, Figures, Observation
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
