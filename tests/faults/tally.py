"""What went wrong, counted by what was done to a search; printed as a table of BENCHMARKS.md."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

COLUMNS = ("records lost", "trained twice", "budget missed", "orphans", "tracebacks", "ended unsaid", "hangs")
TRACES = re.compile(
    r"Traceback|\*\*\* SIG|^\(\w+ pid=", re.MULTILINE
)  # Python's, C++'s, and what Ray passes on of others


class Tally:
    """Counts by kind of fault."""

    def __init__(self) -> None:
        self.rows: dict[str, Counter[str]] = {}

    def add(self, kind: str, wrong: Counter[str]) -> None:
        self.rows.setdefault(kind, Counter()).update(wrong)

    @property
    def wrong(self) -> dict[str, Counter[str]]:
        """What is not as promised, by kind."""
        return {kind: row for kind, row in self.rows.items() if any(row[column] for column in COLUMNS)}

    def __str__(self) -> str:
        head = ("tries", *COLUMNS)
        total = sum(self.rows.values(), Counter())
        lines = [
            f"| {kind} | " + " | ".join(str(row[column]) for column in head) + " |"
            for kind, row in [*sorted(self.rows.items()), ("all", total)]
        ]
        return "\n".join([f"| fault | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|", *lines])


def events(run: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a run's journal."""
    journal = run / "journal.jsonl"
    return [json.loads(line) for line in journal.read_bytes().split(b"\n")[:-1]] if journal.exists() else []


def judge_screen(said: str, status: int | None) -> Counter[str]:
    """Count what a search that has ended should not have said, and whether it said why it ended."""
    lines = ("error: ", "stopped before the end", "no network was found")
    explained = status == 0 or any(line in said for line in lines) or "\nrun: " not in said  # or it has hardly begun
    return Counter(
        {"hangs": int(status is None), "tracebacks": len(TRACES.findall(said)), "ended unsaid": int(not explained)}
    )


def judge_journal(run: Path, before: bytes, said: str, trained: int, *, over: bool) -> Counter[str]:
    """Count what a journal has lost against its state before and against the screen; and what it has too much of."""
    journal = run / "journal.jsonl"
    written, happened = journal.read_bytes() if journal.exists() else b"", events(run)
    outcomes = {e["record"]["candidate"]["number"]: e["record"] for e in happened if e["event"] == "record"}
    shown = {int(number) for number in re.findall(r"^#(\d+) (?!.*handed out again)", said, re.MULTILINE)}
    records = [
        e["record"]["candidate"]["hash"] for e in happened if e["event"] == "record" and "training" in e["record"]
    ]
    finalists = [e["hash"] for e in happened if e["event"] == "finalist"]
    twice = sum(times - 1 for times in (*Counter(records).values(), *Counter(finalists).values()))
    finished = any(e["event"] == "finished" for e in happened)
    missed = len(records) > trained or (over and not (len(records) == trained and finished))
    lost = len(shown - outcomes.keys()) + (not written.startswith(before))
    return Counter({"records lost": lost, "trained twice": twice, "budget missed": int(missed)})
