"""Tune started anew every so many trials: one search for whoever looks at it."""

import contextlib
import itertools
import math
import os
import signal
import threading
from pathlib import Path

import pytest
from ray.util import placement_group_table

from automcu_ray.records.events import Searched
from automcu_ray.records.journal import Repository
from automcu_ray.run import trials
from automcu_ray.runtime import interruption
from automcu_ray.runtime.run_folder import RunFolder
from searchers.proposer import SearchState
from searchers.random import Random
from tests.automcu_ray.run.conftest import Search


@pytest.fixture
def table(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOMCU_DATA", str(data))


TABLE = {"task": "nasbench201", "searcher": "random"}


@pytest.mark.usefixtures("table", "signals")
def test_a_search_of_several_tuners_is_one_search(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "TRIALS_PER_TUNER", 3)
    interruption.listen()
    usual = signal.getsignal(signal.SIGINT)
    folder = RunFolder(tmp_path / "run")
    left = folder.tune / "20260101-000000-0"  # by a Tuner that was killed
    left.mkdir(parents=True)
    (left / "experiment_state-x.json").write_text("{}")
    manifest = search(folder.path, TABLE, "budget.trained=8")
    records = Repository(folder.journal).records
    trained = [record for record in records if record.status == "ok"]
    assert len(trained) == 8 and len({record.candidate.hash for record in trained}) == 8
    assert manifest is not None and manifest.val_accuracy == max(record.score for record in trained)
    assert len(list(folder.tune.iterdir())) == 1 + 3  # 3 + 3 + 2 trials
    assert [path for path in folder.tune.rglob("*") if path.is_file()] == []
    assert signal.getsignal(signal.SIGINT) is usual


@pytest.mark.usefixtures("table", "signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_tuners_and_not_one(
    number: int, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruption.listen()
    monkeypatch.setattr(trials, "TRIALS_PER_TUNER", 40)
    folder = RunFolder(tmp_path / "run")
    seen = threading.Event()

    def press() -> None:
        while not seen.wait(0.05):
            if folder.journal.exists() and folder.journal.read_text().count('"status":"ok"') >= 50:
                os.kill(os.getpid(), number)
                return

    thread = threading.Thread(target=press)
    thread.start()
    try:
        assert search(folder.path, TABLE, "budget.trained=4000") is None
    finally:
        seen.set()
        thread.join()
    repository = Repository(folder.journal)
    searched = repository.last(Searched)
    assert searched is not None and searched.interrupted
    assert 50 <= len(repository.records) < 4000
    assert interruption.status() == 128 + number


@pytest.mark.usefixtures("table", "signals")
def test_a_signal_ends_a_search_that_waits_for_its_first_proposal(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruption.listen()
    asked = itertools.count(1)

    def nothing_yet(proposer: Random, state: SearchState) -> None:  # as a slow model
        number = next(asked)
        if number == 2:
            signal.raise_signal(signal.SIGINT)
        assert number < 20, "Tune still waits"

    monkeypatch.setattr(Random, "propose", nothing_yet)
    assert search(tmp_path / "run", TABLE, "budget.trained=8") is None
    searched = Repository(RunFolder(tmp_path / "run").journal).last(Searched)
    assert searched is not None and searched.interrupted


@pytest.mark.usefixtures("table", "signals")
def test_a_signal_that_code_of_others_has_caught_ends_the_search_all_the_same(search: Search, tmp_path: Path) -> None:
    interruption.listen()
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "run", TABLE, "budget.trained=8")
    assert not Repository(RunFolder(tmp_path / "run").journal).records


@pytest.mark.usefixtures("table", "signals")
def test_a_signal_between_two_tuners_ends_the_search_in_the_same_way(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruption.listen()
    monkeypatch.setattr(trials, "TRIALS_PER_TUNER", 3)
    tidy = trials.tidy

    def pressed(folder: Path) -> None:
        tidy(folder)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(trials, "tidy", pressed)
    assert search(tmp_path / "run", TABLE, "budget.trained=8") is None
    repository = Repository(RunFolder(tmp_path / "run").journal)
    searched = repository.last(Searched)
    assert len(repository.records) == 3 and searched is not None and searched.interrupted


@pytest.mark.usefixtures("table", "signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_as_a_step_begins_leaves_no_share_of_the_machine_taken(
    number: int, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruption.listen()
    folder, tell, pressed = RunFolder(tmp_path / "run"), interruption.tell_tune, threading.Event()

    def press() -> None:
        if not pressed.is_set() and folder.journal.read_text().count('"status":"ok"') >= 3:
            pressed.set()
            signal.raise_signal(number)
        tell()

    monkeypatch.setattr(interruption, "tell_tune", press)
    assert search(folder.path, TABLE, "budget.trained=4000") is None
    searched = Repository(folder.journal).last(Searched)
    assert pressed.is_set() and searched is not None and searched.interrupted
    assert [path for path in folder.tune.rglob("*") if path.is_file()] == []
    states = {group["state"] for group in placement_group_table().values()}
    assert states == {"REMOVED"}


def test_asha_stops_what_ranks_low_by_training_loss_and_records_say_how_far_it_came(
    search: Search, tmp_path: Path
) -> None:
    """The budget is spent all the same: a stopped trial is a trained candidate, scored by its last report."""
    folder = RunFolder(tmp_path / "run")
    settings = ["trainer.asha=true", "trainer.rank_by=loss", "trainer.proxy.epochs=4", "trainer.proxy.patience=null"]
    budget = ["budget.trained=6", "budget.finalists=0"]
    search(folder.path, {"searcher": "random", "backend": "analytic"}, *settings, *budget)
    found = [record.training for record in Repository(folder.journal).records if record.training is not None]
    stopped, whole = ([one for one in found if one.stopped_early is early] for early in (True, False))
    assert len(found) == 6 and stopped and whole
    assert {one.epochs for one in whole} == {4} and {one.epochs for one in stopped} <= {1, 3}
    assert all(one.train_loss is not None and one.score == math.exp(-one.train_loss) for one in found)
    assert max(found, key=lambda one: one.score) in whole


def test_where_tune_sets_no_handler_nothing_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Quiet:
        def fit(self) -> None: ...

    monkeypatch.setenv("TUNE_DISABLE_SIGINT_HANDLER", "1")
    assert not trials.interrupted(Quiet())  # type: ignore[arg-type]


def test_what_tune_leaves_goes_and_a_failed_trials_log_stays(tmp_path: Path) -> None:
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
    (tmp_path / "2" / "error.txt").write_text("Failure # 1")
    (tmp_path / "experiment_state-x.json").write_text("{}")
    trials.tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["2", "error.txt"]
