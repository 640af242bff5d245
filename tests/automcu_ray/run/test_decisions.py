"""The supervisor's decisions: written before they are carried out, made once, and honoured after a resume."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from automcu_ray.core.errors import ConfigError
from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.events import Decided
from automcu_ray.records.journal import Repository
from automcu_ray.records.record import Finalist, Record, TrainingSummary
from automcu_ray.run import decisions, supervisor
from automcu_ray.run.decisions import Decisions
from automcu_ray.run.final_stage import _next_wave
from automcu_ray.run.plan import prepare
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.run_folder import RunFolder
from searchers.stopping import Budget, EarlyEnd
from tests.scripts.test_search import SCRIPT

ALL = ("search", "end_search", "train_fully", "ship", "end")

# Runs scripts/search.py and kills it just before, or just after, a decision is written down.
KILLER = """
import os, runpy, signal, sys
from automcu_ray.records.events import Decided
from automcu_ray.records.journal import Repository
decision, when, script, *flags = sys.argv[1:]
append = Repository.append
def watched(self, *events):
    due = any(isinstance(one, Decided) and one.decision == decision for one in events)
    if due and when == "before": os.kill(os.getpid(), signal.SIGKILL)
    append(self, *events)
    if due and when == "after": os.kill(os.getpid(), signal.SIGKILL)
Repository.append = watched
sys.argv = [script, *flags]
runpy.run_path(script, run_name="__main__")
"""


def trained(number: int, accuracy: float) -> Record:
    summary = TrainingSummary(val_accuracy=accuracy)
    return Record(candidate=Candidate(number=number, hash=f"h{number}"), status="ok", training=summary)


def test_a_decision_is_made_once_also_by_who_reads_the_journal_later(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    for _ in range(2):
        made = Decisions(Repository(path))
        made.make("train_fully", "these\npromise most", agent="training", numbers=[3, 1])
        made.make("train_fully", "said in other words", agent="training", numbers=[3, 1])
    made.make("train_fully", "the next best", agent="training", numbers=[2])
    assert [one.numbers for one in Repository(path).all(Decided)] == [(3, 1), (2,)]
    assert Repository(path).all(Decided)[0].reason == "these promise most"


@pytest.mark.parametrize(
    ("budget", "accuracies", "ended_at"),
    [
        (Budget(), [0.5, 0.99], None),
        (Budget(enough=0.9), [0.8, 0.9, 0.95], (2, "the requirement is met: #2 has 0.9000, 0.9 is enough")),
        (Budget(patience=2), [0.5, 0.6, 0.6, 0.4], (4, "nothing improves: 2 trained candidates in a row")),
        (Budget(patience=2), [0.5, 0.4, 0.6, 0.5], None),
        (Budget(patience=1), [float("nan")], (1, "nothing improves")),  # a network that diverged is no progress
    ],
)
def test_a_search_ends_where_enough_is_reached_or_nothing_improves(
    budget: Budget, accuracies: list[float], ended_at: tuple[int, str] | None
) -> None:
    end, found = EarlyEnd(budget), None
    for number, accuracy in enumerate(accuracies, start=1):
        end.learn(trained(number, accuracy))
        if end.reason and found is None:
            found = number, end.reason
    assert (found and found[0]) == (ended_at and ended_at[0])
    assert ended_at is None or (found is not None and found[1].startswith(ended_at[1]))


def test_finalists_that_were_decided_on_before_a_kill_are_the_ones_that_are_trained(tmp_path: Path) -> None:
    plan = prepare(compose({"task": "digits", "searcher": "random", "backend": "analytic"}))
    repository = Repository(tmp_path / "journal.jsonl")
    for number in (1, 2, 3):
        repository.add(trained(number, 0.9 + number / 100))
    Decisions(repository).make("train_fully", "decided once", agent="training", numbers=[1, 2])
    wave = _next_wave(plan, repository, [Finalist(number=1, hash="h1", training=TrainingSummary(val_accuracy=0.9))])
    assert [record.candidate.number for record in wave] == [2], "#3 promises more, but #2 was decided on"
    broken = [Finalist(number=number, hash=f"h{number}", reason="its worker broke") for number in (1, 2)]
    wave = _next_wave(plan, repository, broken)
    assert [record.candidate.number for record in wave] == [3], "failed work goes to the next best"
    assert Decisions(repository).of("train_fully")[-1].reason.startswith("no finalist so far can ship; the next best")


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (["supervisor.enough=1.2"], r"supervisor\.enough: .*less than or equal to 1"),
        (["supervisor.enough=0.9", "objective=flash", "constraints.accuracy=0.9"], "has no effect where the least fl"),
        (["supervisor.calls=9"], r"set supervisor\.agents=shared"),
        (["supervisor.agents=shared"], "searcher 'random' asks no engine: take --searcher llm"),
        (["supervisor.agents=shared", "supervisor.patience=3"], "the agents decide when it is enough"),
        (["supervisor.agents=shared", "searcher=llm", "engine=offline"], "asks engine 'offline'"),
        (
            ["supervisor.agents=shared", "searcher=llm", "engine=simulated", "warm_start.searcher=capacity"],
            "the agents propose all by themselves",
        ),
    ],
)
def test_a_rule_that_has_no_effect_is_refused(settings: list[str], wanted: str) -> None:
    groups = {"task": "digits", "searcher": "random"}
    picked = {key: value for key, _, value in (one.partition("=") for one in settings) if key in ("searcher", "engine")}
    rest = [one for one in settings if one.partition("=")[0] not in picked]
    if "enough" in settings[0] and "objective=flash" in settings:
        rest.append("budget.finalists=2")
    with pytest.raises(ConfigError, match=wanted):
        prepare(compose({**groups, **picked}, rest))


def test_shared_agents_on_a_table_choose_what_ships_and_a_dead_end_ships_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOMCU_DATA", str(data))
    groups = {"task": "nasbench201", "searcher": "llm", "engine": "simulated"}
    sound = prepare(compose(groups, ["supervisor.agents=shared", "engine.errors=0", "budget.trained=3"]))
    repository, manifest = supervisor.look_up_all(sound)
    assert [one.decision for one in repository.all(Decided)] == ["end_search", "train_fully", "ship", "end"]
    assert manifest is not None and (manifest.number,) == Decisions(repository).of("train_fully")[0].numbers
    broken = prepare(compose(groups, ["supervisor.agents=shared", "engine.errors=1"]))
    repository, manifest = supervisor.look_up_all(broken)
    assert manifest is None
    assert Decisions(repository).of("fail")[0].reason.startswith("nothing is deployed: a dead end: 3 failed calls in")


@pytest.mark.thorough
def test_shared_agents_drive_the_stages_of_a_whole_run(search, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    groups = {"searcher": "llm", "engine": "simulated", "backend": "analytic"}
    short = ["trainer.proxy.epochs=1", "trainer.full.epochs=1", "trainer.full.qat_epochs=0", "budget.trained=2"]
    manifest = search(tmp_path / "run", groups, "supervisor.agents=shared", "engine.errors=0", *short)
    found = Repository(tmp_path / "run" / "journal.jsonl").all(Decided)
    assert [one.decision for one in found] == ["search", "end_search", "train_fully", "ship", "end"]
    assert manifest is not None and found[2].numbers == found[3].numbers == (manifest.number,)
    assert "What the supervisor decided" in (tmp_path / "run" / "report.html").read_text()


def test_lost_work_that_is_handed_out_again_is_written_down(tmp_path: Path) -> None:
    class Stand:
        repository, gate = Repository(), None

    output, trial = io.StringIO(), SimpleNamespace(config={"number": 4})
    decisions.Reassignment(Stand(), Console(file=output)).on_trial_recover(1, [], trial)  # type: ignore[arg-type]
    (made,) = Stand.repository.all(Decided)
    assert (made.decision, made.agent, made.numbers, made.reason) == ("reassign", "training", (4,), "its worker died")
    assert "handed out again (training)" in output.getvalue()


@pytest.mark.slow
def test_killed_before_and_after_each_decision_none_is_lost_and_none_repeated(tmp_path: Path) -> None:
    """One run that dies ten times."""
    flags = ("--searcher", "random", "--backend", "analytic", "--name", "run", "--runs", str(tmp_path))
    short = ("trainer.proxy.epochs=1", "trainer.full.epochs=1", "trainer.full.qat_epochs=0", "budget.trained=2")
    fresh = (*flags, *(word for one in short for word in ("--set", one)))
    journal = tmp_path / "run" / "journal.jsonl"
    environment = {**os.environ, "AUTOMCU_CACHE": str(tmp_path / "cache")}
    before = b""
    for decision in ALL:
        for when in ("before", "after"):
            mine = ("--resume", str(tmp_path / "run")) if journal.exists() else fresh
            command = [sys.executable, "-c", KILLER, decision, when, str(SCRIPT), *mine]
            found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
            assert found.returncode == -signal.SIGKILL, f"{when} {decision}: {found.stdout}{found.stderr}"
            written = journal.read_bytes()
            assert written.startswith(before)
            before = written
    repository = Repository(journal)
    assert tuple(one.decision for one in repository.all(Decided)) == ALL
    assert sum(record.scored for record in repository.records) == 2 and not repository.pending()
    plan = prepare(compose({"task": "digits", "searcher": "random", "backend": "analytic"}))
    again = supervisor.run(plan, RunFolder(tmp_path / "run"), Console(file=io.StringIO()), resumed=True)
    assert again is not None and again.number == repository.all(Decided)[3].numbers[0]
