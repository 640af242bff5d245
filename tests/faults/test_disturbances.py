"""Searches whose disk fills, whose folder cannot be written, whose clock jumps, whose run another driver wants.

`make faults FAULTS=200` disturbs one search in each way for every 40.
"""

import os
import resource
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.faults.processes import Search
from tests.faults.tally import Tally, events, judge_journal, judge_screen

COUNT, SEED = int(os.environ.get("FAULTS", "10")), int(os.environ.get("FAULTS_SEED", "0"))
TRAINED, ORPHAN_S, HANG_S, ROOM = 6, 60, 600, 4000
FLAGS = (
    *("--searcher", "random", "--name", "run", "--set", "board.mode=none", "--set", f"budget.trained={TRAINED}"),
    *("--set", "budget.finalists=1", "--set", "trainer.proxy.epochs=2", "--set", "trainer.full.epochs=2"),
    *("--set", "trainer.full.qat_epochs=0"),
)

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("gcc")]


def begun(search: Search, run: Path, lines: int) -> bool:
    """Wait until the journal has so many lines; say whether the search still goes on."""
    while search.process.poll() is None and len(events(run)) < lines:
        search.look()
        time.sleep(0.1)
    return search.process.poll() is None


def full_disk(search: Search, run: Path, rng: Random) -> int | None:
    """Let the driver's files grow by a little more: part of a line is written, then none."""
    if begun(search, run, rng.randint(1, TRAINED)):
        size = (run / "journal.jsonl").stat().st_size + rng.randint(0, ROOM)
        resource.prlimit(search.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    return search.wait(HANG_S)


def another_driver(search: Search, run: Path, rng: Random) -> int | None:
    """Let a second driver resume the run under the first: it is refused in one line."""
    if begun(search, run, rng.randint(1, TRAINED)):
        second = Search(run.parent, "--resume", str(run), output="second.txt")
        assert second.wait(HANG_S) == 2 or search.process.poll() is not None
        assert second.said().count("\n") < 6
    return search.wait(HANG_S)


def read_only(search: Search, run: Path, rng: Random) -> int | None:
    """Interrupt, and go on where nothing can be written: a refusal in one line."""
    if begun(search, run, rng.randint(1, TRAINED)):
        os.kill(search.process.pid, signal.SIGINT)
    return search.wait(HANG_S)


WAYS = {"full disk, whole search": full_disk, "two drivers": another_driver, "read-only folder": read_only}


@pytest.mark.parametrize("kind", [*WAYS, "clock that jumps, whole search"])
def test_a_disturbed_search_says_so_and_goes_on(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if kind == "read-only folder" and shutil.which("bwrap") is None:
        pytest.skip("needs bwrap: apt install bubblewrap")
    tally = Tally()
    for number in range(max(1, COUNT // 40)):
        rng, runs = Random(f"{SEED} {kind} {number}"), tmp_path / str(number)
        runs.mkdir()
        tally.add(kind, Counter(tries=1) + disturbed(kind, runs, rng))
    with capsys.disabled():
        print("", tally, sep="\n")
    assert not tally.wrong


def disturbed(kind: str, runs: Path, rng: Random) -> Counter[str]:
    """Disturb a search, then go on with it to its end; return what went wrong."""
    run, clock = runs / "run", {"FAULTS_CLOCK": str(SEED)} if kind.startswith("clock") else {}
    search = Search(runs, *FLAGS, "--seed", str(rng.randint(1, 10**6)), **clock)
    status = WAYS[kind](search, run, rng) if kind in WAYS else search.wait(HANG_S)
    wrong: Counter[str] = Counter()
    for _ in range(3):
        wrong.update(orphans=len(search.left(ORPHAN_S)))
        wrong.update(judge_screen(search.said(), status))
        wrong.update(judge_journal(run, b"", search.said(), TRAINED, over=status == 0))
        if status == 0:
            return wrong
        if kind == "read-only folder":
            kind, bind = "", ("bwrap", "--dev-bind", "/", "/", "--ro-bind", str(run), str(run))
            search = Search(runs, "--resume", str(run), before=bind)
        else:
            search = Search(runs, "--resume", str(run))
        status = search.wait(HANG_S)
    return wrong + Counter({"budget missed": 1})
