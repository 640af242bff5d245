"""Kills at random moments of searches: nothing is lost, nothing is done twice, and every budget is kept.

`make faults FAULTS=200` sends so many signals and prints a table; the seed of its moments is FAULTS_SEED, 0 unless set.
A search takes as many as find it alive: hits of workers and actors it survives; after others it is resumed.
"""

import contextlib
import os
import signal
import time
from collections import Counter
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.faults.processes import Search
from tests.faults.tally import Tally, events, judge_journal, judge_screen

COUNT, SEED = int(os.environ.get("FAULTS", "10")), int(os.environ.get("FAULTS_SEED", "0"))
ENDS, SURVIVED = ("driver", "raylet", "gcs", "agent"), ("worker", "toolchain", "engine")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TRAINED, ORPHAN_S, HANG_S = 12, 60, 600
MOST_LIVES = 12  # of a run that is hit: after so many resumptions it is left in peace
CHEAP = 3  # hits that a search survives, to each that ends it, for the start of a search is what takes time
LINES, START_S, WAIT_S, BETWEEN_S = 8, 20.0, 3.0, 4.0  # what is waited for before a hit, at most
FLAGS = (
    *("--searcher", "llm", "--engine", "vllm", "--set", "engine.gpus=0", "--set", "board.mode=none"),
    *("--set", f"budget.trained={TRAINED}", "--set", "budget.finalists=1", "--set", "trainer.proxy.epochs=2"),
    *("--set", "trainer.full.epochs=2", "--set", "trainer.full.qat_epochs=0"),
)


class Fault(NamedTuple):
    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {signal.Signals(self.number).name}"

    def hit(self, search: Search) -> bool:
        """Send the signal to such a process of a search, if there is one."""
        if search.process.poll() is None and (found := search.find(self.kind)):
            with contextlib.suppress(ProcessLookupError):  # it has come to its end
                os.kill(found[0].pid, self.number)
                return True
        return False


def drawn(rng: Random, count: int) -> list[Fault]:
    """Return so many faults, of all kinds by all signals."""
    all_ = [Fault(*one) for one in (*product(ENDS, SIGNALS), *CHEAP * [*product(SURVIVED, SIGNALS)])]
    return [fault for _ in range(0, count, len(all_)) for fault in rng.sample(all_, len(all_))][:count]


def one_life(search: Search, run: Path, ends: list[Fault], survived: list[Fault], rng: Random) -> list[Fault]:
    """Hit a search until one of `ends` has hit it or it has ended; return what hit it, which is taken from the lists.

    That one comes some time after its process is there, or after some lines of the journal, so that all stages of a
    search are hit on fast and slow machines alike.
    """
    hits: list[Fault] = []
    share = -(-len(survived) // max(1, len(ends)))  # of those that it survives, so that both lists last
    lines = len(events(run)) + rng.choice([0, rng.randint(1, LINES)])
    wait_s = rng.uniform(0, START_S if lines == len(events(run)) else WAIT_S)
    end_s, next_s = None, 0.0
    while search.process.poll() is None:
        now_s = time.monotonic()
        if ends and end_s is None and len(events(run)) >= lines and search.find(ends[-1].kind):
            end_s = now_s + wait_s
        if end_s is not None and now_s > end_s:
            return [*hits, ends.pop()] if ends[-1].hit(search) else hits
        if survived and len(hits) < 2 * share and now_s > next_s:
            fault = next((one for one in survived if one.hit(search)), None)
            if fault is not None:
                survived.remove(fault)
                hits.append(fault)
                next_s = now_s + rng.uniform(0, BETWEEN_S)
        time.sleep(0.2)
    return hits


def one_run(runs: Path, model: Path, seed: int, ends: list[Fault], survived: list[Fault], tally: Tally) -> None:
    """Hit a run again and again, resuming it each time, until it is finished; count what went wrong after each hit."""
    run, journal, before, last = runs / "run", runs / "run" / "journal.jsonl", b"", "no fault"
    rng, twice = Random(f"{SEED}:{seed}"), 0
    fresh = (*FLAGS, "--name", "run", "--seed", str(seed), "--set", f"engine.model={model}")
    for life in range(MOST_LIVES + 3):
        search = Search(runs, *(("--resume", str(run)) if (run / "config.yaml").exists() else fresh))
        hits = one_life(search, run, ends, survived, rng) if life < MOST_LIVES else []
        status = search.wait(HANG_S)
        left, said = search.left(ORPHAN_S), search.said()
        for fault in hits:
            tally.add(str(last := fault), Counter(tries=1))
        over = status == 0 or life == MOST_LIVES + 2
        wrong = judge_screen(said, status) + judge_journal(run, before, said, TRAINED, over=over)
        wrong["orphans"] = len(left)
        wrong["trained twice"], twice = wrong["trained twice"] - twice, wrong["trained twice"]
        tally.add(str(last), wrong)
        names = ", ".join(map(str, hits)) or "no fault"
        print(f"run {seed}, life {life}: {names}: exit {status}, {len(events(run))} lines, {dict(+wrong)}", flush=True)
        if +wrong:
            print(*(f"left: {one}" for one in left), said[-3000:], sep="\n", flush=True)
        if over:
            return
        before = journal.read_bytes()[: journal.read_bytes().rfind(b"\n") + 1] if journal.exists() else b""


@pytest.mark.faults
def test_kills_cost_nothing(gcc: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model := tmp_path / "model").mkdir()
    (model / "config.json").write_text("{}")
    faults, tally = drawn(Random(SEED), COUNT), Tally()
    ends = [fault for fault in faults if fault.kind in ENDS]
    survived = [fault for fault in faults if fault.kind in SURVIVED]
    with capsys.disabled():
        while ends or survived:
            seed = SEED * 1000 + len(ends) + len(survived)
            (runs := tmp_path / str(seed)).mkdir()
            one_run(runs, model, seed, ends, survived, tally)
        print(tally)
    assert not tally.wrong
