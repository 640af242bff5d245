"""Kills at random moments of small searches: nothing is lost, nothing is done twice, and every budget is kept.

`make faults FAULTS=200` makes so many and prints a table; the seed of its moments is FAULTS_SEED, 0 unless set.
"""

import contextlib
import json
import os
import re
import signal
import time
from collections import Counter
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.faults.processes import Search

COUNT, SEED = int(os.environ.get("FAULTS", "10")), int(os.environ.get("FAULTS_SEED", "0"))
KINDS = ("driver", "worker", "toolchain", "raylet", "gcs")  # an engine's actor needs vLLM, which needs a model
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TRAINED, ORPHAN_S, HANG_S = 3, 60, 900
LINES, WAIT_S = 9, 5.0  # of the journal of such a search, while trials run; and seconds, for what happens between lines
COLUMNS = ("records lost", "trained twice", "budget missed", "orphans", "tracebacks", "hangs")
FLAGS = ("--searcher", "random", "--name", "run", "--set", "board.mode=none", "--set", "trainer.proxy.epochs=2")
BUDGET = ("--set", f"budget.trained={TRAINED}", "--set", "budget.finalists=1", "--set", "trainer.full.epochs=2")


def events(run: Path) -> list[dict[str, Any]]:
    journal = run / "journal.jsonl"
    return [json.loads(line) for line in journal.read_bytes().split(b"\n")[:-1]] if journal.exists() else []


def records(run: Path) -> dict[int, dict[str, Any]]:
    return {e["record"]["candidate"]["number"]: e["record"] for e in events(run) if e["event"] == "record"}


def hit(search: Search, run: Path, kind: str, number: int, lines: int, wait_s: float) -> bool:
    """Send a signal a little after the journal has so many lines; say whether there was whom to send it to."""
    while search.process.poll() is None:
        found = search.find(kind)
        if found and len(events(run)) >= lines:
            time.sleep(wait_s)
            with contextlib.suppress(ProcessLookupError):  # it has come to its end
                os.kill(found[0].pid, number)
                return True
        time.sleep(0.1)
    return False


def one_fault(runs: Path, kind: str, number: int, lines: int, wait_s: float) -> Counter[str]:
    """Hit a search once, then go on with it until its end; return what went wrong."""
    wrong: Counter[str] = Counter()
    run, journal, before = runs / "run", runs / "run" / "journal.jsonl", b""
    search = Search(runs, *FLAGS, *BUDGET)
    wrong["hit"] = hit(search, run, kind, number, lines, wait_s)
    for _ in range(4):
        status, said = search.wait(HANG_S), search.output.read_text(errors="replace")
        shown = {int(found) for found in re.findall(r"^#(\d+) ", said, re.MULTILINE)}
        written = journal.read_bytes() if journal.exists() else b""
        wrong["hangs"] += status is None
        wrong["tracebacks"] += said.count("Traceback") + said.count("*** SIG")
        wrong["records lost"] += len(shown - records(run).keys()) + (not written.startswith(before))
        left = search.left(ORPHAN_S)
        wrong.update(["orphans"] * len(left) + [f"left: {one.title}" for one in left])
        if status == 0:
            break
        before = written[: written.rfind(b"\n") + 1]
        begun = (run / "config.yaml").exists()
        search = Search(runs, *(("--resume", str(run)) if begun else (*FLAGS, *BUDGET)))
    done = events(run)
    outcomes = [event["record"] for event in done if event["event"] == "record"]
    trained = [record["candidate"]["hash"] for record in outcomes if record.get("training")]
    finalists = [e["hash"] for e in done if e["event"] == "finalist"]
    wrong["trained twice"] += sum(n - 1 for n in (*Counter(trained).values(), *Counter(finalists).values()))
    wrong["budget missed"] += len(trained) != TRAINED or not any(e["event"] == "finished" for e in done)
    return wrong


@pytest.mark.faults
def test_kills_cost_nothing(gcc: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, table = Random(SEED), {}
    faults = list(product(KINDS, SIGNALS))
    rng.shuffle(faults)
    for at in range(COUNT):
        kind, number = faults[at % len(faults)]
        (runs := tmp_path / str(at)).mkdir()
        wrong = one_fault(runs, kind, number, rng.randint(0, LINES), rng.uniform(0, WAIT_S))
        table[at] = (f"{kind} {signal.Signals(number).name}", wrong)
        with capsys.disabled():
            print(f"{at + 1} of {COUNT}: {table[at][0]}: {dict(+wrong)}", flush=True)
    with capsys.disabled():
        print(as_table(list(table.values())))
    assert all(wrong[column] == 0 for _, wrong in table.values() for column in COLUMNS)


def as_table(rows: list[tuple[str, Counter[str]]]) -> str:
    """Return what went wrong as Markdown, one line for each kind of process and signal."""
    sums: dict[str, Counter[str]] = {}
    for name, wrong in rows:
        sums.setdefault(name, Counter()).update({"searches": 1, **wrong})
    head = ("searches", "hit", *COLUMNS)
    lines = [f"| {name} | " + " | ".join(str(sums[name][column]) for column in head) + " |" for name in sorted(sums)]
    total = sum(sums.values(), Counter())
    lines.append("| all | " + " | ".join(str(total[column]) for column in head) + " |")
    return "\n".join([f"| hit | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|", *lines])
