"""A journal that a disk, a crash or a hand has damaged, and a search that goes on: hundreds in minutes, no Ray.

`make faults FAULTS=200` damages so many journals in each way. A trial's training is made up: it takes no time.
"""

import json
import os
import resource
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.task import Task
from automcu_ray.records.journal import Repository
from automcu_ray.records.record import TrainingSummary
from searchers.random import Random as RandomProposer
from searchers.stopping import Budget
from searchers.tune_searcher import TuneSearcher
from tests.faults.tally import Tally, events

COUNT, SEED = int(os.environ.get("FAULTS", "10")), int(os.environ.get("FAULTS_SEED", "0"))
TRAINED = 12

pytestmark = pytest.mark.faults


def go_on(journal: Path, task: Task, trials: int) -> list[str]:
    """Go on with a search for so many trials; return the hashes of what was trained and written down."""
    budget = Budget(trained=TRAINED)
    searcher = TuneSearcher(RandomProposer(task, seed=SEED), repository=Repository(journal), budget=budget)
    trained = []
    for trial in range(trials):
        config = searcher.suggest(str(trial))
        if not isinstance(config, dict):
            break
        candidate, _ = searcher.live[str(trial)]
        searcher.on_trial_complete(str(trial), TrainingSummary(val_accuracy=0.5).reported())
        trained.append(candidate.hash)
    return trained


def torn(journal: Path, rng: Random) -> None:
    """A kill while the last line was written: what it said had not been promised to anybody."""
    data = journal.read_bytes()
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    journal.write_bytes(data[: rng.randint(last, len(data) - 1)])


def _lines(journal: Path, change: Callable[[list[bytes]], None]) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    change(lines)
    journal.write_bytes(b"".join(lines))


def duplicated(journal: Path, rng: Random) -> None:
    _lines(journal, lambda lines: lines.insert(rng.randint(0, len(lines)), rng.choice(lines)))


def reordered(journal: Path, rng: Random) -> None:
    _lines(journal, rng.shuffle)


def garbage(journal: Path, rng: Random) -> None:
    _lines(journal, lambda lines: lines.insert(rng.randint(0, len(lines)), rng.randbytes(rng.randint(1, 99)) + b"\n"))


def newer(journal: Path, rng: Random) -> None:
    line = json.dumps({"event": "dreamt", "of": rng.random()}).encode() + b"\n"
    _lines(journal, lambda lines: lines.insert(rng.randint(0, len(lines)), line))


DAMAGE = {"torn line": torn, "copied line": duplicated, "lines in another order": reordered}
REFUSED = {"garbage line": garbage, "line of a newer version": newer}


def judge(journal: Path, before: set[str], trained: list[str]) -> Counter[str]:
    """Compare a journal at the end of its search with the records that it had, and with all that was trained."""
    kept = [e["record"]["candidate"]["hash"] for e in events(journal.parent) if e["event"] == "record"]
    twice = sum(times - 1 for times in Counter(trained).values())
    missed = sum(record.training is not None for record in Repository(journal).records) != TRAINED
    return Counter({"records lost": len(before - set(kept)), "trained twice": twice, "budget missed": int(missed)})


def one(kind: str, folder: Path, task: Task, rng: Random) -> Counter[str]:
    """Damage the journal of a search at some moment, and go on with it to its end."""
    journal = folder / "journal.jsonl"
    journal.unlink(missing_ok=True)
    trained = go_on(journal, task, rng.randint(1, TRAINED - 1))
    wrong: Counter[str] = Counter(tries=1)
    if kind in REFUSED:
        sound = journal.read_bytes()
        REFUSED[kind](journal, rng)
        with pytest.raises(ConfigError, match="is not a journal event") as caught:
            Repository(journal)
        wrong["ended unsaid"] += "\n" in str(caught.value)
        journal.write_bytes(sound)  # as the message says
    elif kind == "full disk":
        trained += _with_room_for(journal, rng.randint(0, 3000), task)
    else:
        DAMAGE[kind](journal, rng)
    before = {e["record"]["candidate"]["hash"] for e in events(folder) if e["event"] == "record"}
    trained = [name for name in trained if name in before]  # a torn record was none
    return wrong + judge(journal, before, trained + go_on(journal, task, 100))


def _with_room_for(journal: Path, room: int, task: Task) -> list[str]:
    """Go on until a disk with so many bytes left is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = {e["record"]["candidate"]["hash"] for e in events(journal.parent) if e["event"] == "record"}
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size + room, hard))
    try:
        with pytest.raises(OSError, match="journal"):
            go_on(journal, task, 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    after = {e["record"]["candidate"]["hash"] for e in events(journal.parent) if e["event"] == "record"}
    return sorted(after - before)


def test_damaged_journals_cost_what_they_say(
    digits_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally()
    for kind in (*DAMAGE, *REFUSED, "full disk", "clock that jumps"):
        for number in range(COUNT):
            rng = Random(f"{SEED} {kind} {number}")
            with monkeypatch.context() as patch:
                if kind == "clock that jumps":
                    patch.setattr(time, "time", lambda rng=rng: rng.uniform(-1e9, 4e9))
                    tally.add(kind, _clock(tmp_path, digits_task, rng))
                else:
                    tally.add(kind, one(kind, tmp_path, digits_task, rng))
    with capsys.disabled():
        print("", tally, sep="\n")
    assert not tally.wrong


def _clock(folder: Path, task: Task, rng: Random) -> Counter[str]:
    journal = folder / "journal.jsonl"
    journal.unlink(missing_ok=True)
    trained = go_on(journal, task, rng.randint(1, TRAINED - 1))
    return Counter(tries=1) + judge(journal, set(trained), trained + go_on(journal, task, 100))
