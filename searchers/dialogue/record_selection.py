"""Which records a proposal agent is shown: selected summaries of `R(k)` within a budget of tokens (paper 000)."""

import json
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from automcu_ray.records.record import Record, TrainingSummary, pareto_front
from automcu_ray.sizing.near_misses import excess

CHARS_PER_TOKEN = 3  # of JSON, roughly: whoever wants it exact has to ask the model's own tokenizer
REASON_CHARS = 160
_LEAST_CHARS = 30  # of a summary, or of a row
Shown = dict[str, list[Record]]  # by heading


def _summary_chars(record: Record) -> int:
    return len(json.dumps(summary(record)))


def select(records: Sequence[Record], tokens: int, chars: Callable[[Record], int] = _summary_chars) -> Shown:
    """Return records whose summaries, of so many `chars`, take about `tokens` tokens, each once, by heading.

    The headings take turns, so that each has its best entries in: the Pareto front of accuracy, RAM, Flash and
    instructions from the most accurate one on (from the best one on where the cheapest is sought), the nearest misses
    from the closest one on, repeats and all others from the latest on.
    """
    room = tokens * CHARS_PER_TOKEN
    most = room // _LEAST_CHARS  # under a heading: no room is left after that many
    found = {heading: entries[:most] for heading, entries in by_heading(records).items()}
    shown: Shown = {heading: [] for heading in found}
    seen: set[int] = set()
    for turn in zip_longest(*found.values()):
        for heading, record in zip(found, turn, strict=True):
            if record is None or record.candidate.number in seen:
                continue
            size = chars(record)
            if size <= room:
                seen.add(record.candidate.number)
                shown[heading].append(record)
                room -= size
    return {heading: entries for heading, entries in shown.items() if entries}


def everything(records: Sequence[Record]) -> Shown:
    """Return all records, oldest first: an ablation, for it grows with the run."""
    return {"All candidates": list(records)} if records else {}


def summary(record: Record) -> dict[str, Any]:
    """Return a record in the form of paper 000, section III-B: the network and its metrics, or what was wrong."""
    candidate, report = record.candidate, record.feasibility
    entry: dict[str, Any] = {"candidate": candidate.number}
    if candidate.spec is not None:
        entry["architecture"] = candidate.spec.compact()
    entry["status"] = record.status
    if record.training is not None:
        entry |= figures(record.training)
    if report is not None and report.least_ram_bytes is not None:
        entry |= {"ram_bytes": report.least_ram_bytes, "flash_bytes": report.flash_bytes}
        if report.instructions is not None:
            entry["instructions"] = report.instructions
    if record.status != "ok":
        entry["reason"] = record.reason[:REASON_CHARS]
    if report is not None and report.fixes:
        entry["fix"] = ", ".join(str(fix) for fix in report.fixes)
    return entry


def figures(training: TrainingSummary) -> dict[str, float]:
    """Return accuracy, or the task's other metric, and the training loss where the search ranks by it."""
    found: dict[str, float] = {training.metric: round(training.value, 4)}
    if training.ranking_loss is not None:
        found["training_loss"] = round(training.ranking_loss, 3)
    return found


def by_heading(records: Sequence[Record]) -> Shown:
    """Return the records that belong under each heading, the most telling first."""
    trained = [record for record in records if record.status == "ok"]
    refused = [record for record in records if record.status == "infeasible"]
    latest = list(reversed(records))
    return {
        "Best and Pareto front": sorted(pareto_front(records) or trained, key=lambda one: -one.score),
        "Nearest misses": sorted(refused, key=lambda one: (excess(one) or float("inf"), -one.candidate.number)),
        "Repeats, refused because they had been tried": [one for one in latest if one.status == "duplicate"],
        "Latest": latest,
    }
