"""The searcher in Tune's protocol: one attempt at a time, the journal as memory, and an end."""

import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from ray.tune.search import Searcher

from automcu_ray.records.attempt import Attempt, Check, Observation, score
from automcu_ray.records.journal import Repository
from searchers.agent.tune_agent import AgentSearcher

Ended = Any


def searcher(folder: Path, attempts: int = 2, ended: Ended = "submitted") -> AgentSearcher:
    def play(number: int, history: list[Observation], kept: Path) -> Attempt:
        return Attempt(number=number, ended=ended, notes=f"{len(history)} before")

    return AgentSearcher(play, attempts=attempts, repository=Repository(folder / "journal.jsonl"), folder=folder)


def ask(asked: AgentSearcher, trial: str = "t") -> Any:
    for _ in range(500):
        if (found := asked.suggest(trial)) is not None:
            return found
        time.sleep(0.01)
    raise AssertionError("nothing was suggested")


def result(number: int, objective: float | None) -> dict[str, Any]:
    return {"observation": Observation(attempt=number, objective=objective).model_dump_json()}


def test_attempts_come_one_after_the_other_and_the_next_knows_the_last(tmp_path: Path) -> None:
    asked = searcher(tmp_path)
    first = ask(asked, "a")
    assert first["attempt"] == 1 and first["artifact"].endswith("iteration_1/artifact")
    assert [asked.suggest("b") for _ in range(3)] == 3 * [None]
    asked.on_trial_complete("a", result(1, 12.0))
    assert ask(asked, "b")["attempt"] == 2 and asked.made[1].notes == "1 before"
    asked.on_trial_complete("b", result(2, None))
    assert ask(asked, "c") == Searcher.FINISHED
    assert score(asked.observations) == (12.0, 2)


def test_another_process_goes_on_from_the_journal(tmp_path: Path) -> None:
    asked = searcher(tmp_path)
    assert ask(asked, "a")["attempt"] == 1
    again = searcher(tmp_path)
    assert ask(again, "x")["attempt"] == 1 and len(again.made) == 1  # not played again
    again.on_trial_complete("x", result(1, 3.0))
    assert ask(again, "y")["attempt"] == 2


def test_a_board_that_failed_ends_the_run_and_a_resumed_one_asks_it_again(tmp_path: Path) -> None:
    asked = searcher(tmp_path)
    ask(asked, "a")
    asked.on_trial_complete("a", error=True)
    assert "could not be judged" in asked.gave_up and ask(asked, "b") == Searcher.FINISHED
    assert score(asked.observations) == (float("inf"), 0)
    assert ask(searcher(tmp_path), "a")["attempt"] == 1


def test_an_engine_that_fails_three_times_ends_the_run(tmp_path: Path) -> None:
    asked = searcher(tmp_path, attempts=10, ended="engine failed")
    assert ask(asked) == Searcher.FINISHED
    assert len(asked.made) == 3 and "3 times in a row" in asked.gave_up


def test_an_agent_that_breaks_ends_the_run_with_its_words(tmp_path: Path) -> None:
    asked = searcher(tmp_path)

    def broken(*about: Any) -> Attempt:
        raise RuntimeError("a defect")

    asked.play = broken
    assert ask(asked) == Searcher.FINISHED and "a defect" in asked.gave_up


def test_a_signal_ends_it_while_the_agent_still_thinks(tmp_path: Path) -> None:
    def slow(*about: Any) -> Attempt:
        time.sleep(30)
        raise AssertionError

    asked, seen = searcher(tmp_path), []
    asked.play, asked.stopped = slow, lambda: bool(seen)
    assert asked.suggest("a") is None
    seen.append("SIGINT")
    assert asked.suggest("a") == Searcher.FINISHED and asked.made == []


def test_it_is_pickled_without_thread_and_player(tmp_path: Path) -> None:
    asked = searcher(tmp_path)
    ask(asked, "a")
    assert pickle.loads(pickle.dumps(asked)).attempts == 2


@pytest.mark.parametrize("objective", [0.0, 5.0])
def test_ties_of_runs_go_by_attempts_failed_ones_included(objective: float) -> None:
    failed = Observation(attempt=1, checks=(Check(name="build", passed=False),))
    quick, slow = [Observation(attempt=1, objective=objective)], [failed, Observation(attempt=2, objective=objective)]
    assert score(quick) < score(slow) < score([failed])
