"""Which records a proposal agent is shown: selected summaries of `R(k)` within a budget of tokens (paper 000)."""

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from automcu_ray.misses import excess
from automcu_ray.record import Record, TrainingSummary, pareto_front

CHARS_PER_TOKEN = 3  # of JSON, roughly: whoever wants it exact has to ask the model's own tokenizer
REASON_CHARS = 160
_LEAST_CHARS = 50  # of a summary
Shown = dict[str, list[dict[str, Any]]]  # by heading


def select(records: Sequence[Record], tokens: int) -> Shown:
    """Return summaries for about `tokens` tokens, each record once, by heading.

    The headings take turns, so that each has its best entries in: the Pareto front of accuracy, RAM and Flash from
    the most accurate one on, the nearest misses from the closest one on, repeats and all others from the latest on.
    """
    room = tokens * CHARS_PER_TOKEN
    shown: Shown = {heading: [] for heading in _HEADINGS}
    seen: set[int] = set()
    for heading, record in _in_turns(records, most=room // _LEAST_CHARS):
        entry = summary(record)
        size = len(json.dumps(entry))
        if record.candidate.number in seen or size > room:
            continue
        seen.add(record.candidate.number)
        shown[heading].append(entry)
        room -= size
    return {heading: entries for heading, entries in shown.items() if entries}


def everything(records: Sequence[Record]) -> Shown:
    """Return all summaries, oldest first: an ablation, for it grows with the run."""
    return {"All candidates": [summary(record) for record in records]} if records else {}


def summary(record: Record) -> dict[str, Any]:
    """Return a record in the form of paper 000, section III-B: the network and its metrics, or what was wrong."""
    candidate, report = record.candidate, record.feasibility
    entry: dict[str, Any] = {"candidate": candidate.number}
    if candidate.spec is not None:
        entry["architecture"] = candidate.spec.compact()
    entry["status"] = record.status
    if record.training is not None:
        entry |= figures(record.training)
    if report is not None and report.ram_bytes is not None:
        entry |= {"ram_bytes": report.ram_bytes, "flash_bytes": report.flash_bytes}
    if record.status != "ok":
        entry["reason"] = record.reason[:REASON_CHARS]
    if report is not None and report.fixes:
        entry["fix"] = ", ".join(str(fix) for fix in report.fixes)
    return entry


def figures(training: TrainingSummary) -> dict[str, float]:
    """Return accuracy, and the training loss where the search ranks by it."""
    found = {"accuracy": round(training.val_accuracy, 4)}
    if training.ranking_loss is not None:
        found["training_loss"] = round(training.ranking_loss, 3)
    return found


def _pareto(records: Sequence[Record]) -> list[Record]:
    return pareto_front(records) or sorted((r for r in records if r.status == "ok"), key=lambda one: -one.score)


def _misses(records: Sequence[Record]) -> list[Record]:
    refused = [record for record in records if record.status == "infeasible"]
    return sorted(refused, key=lambda one: (excess(one) or float("inf"), -one.candidate.number))


def _repeats(records: Sequence[Record]) -> list[Record]:
    return [record for record in reversed(records) if record.status == "duplicate"]


def _latest(records: Sequence[Record]) -> list[Record]:
    return list(reversed(records))


_HEADINGS = {
    "Best and Pareto front": _pareto,
    "Nearest misses": _misses,
    "Repeats, refused because they had been tried": _repeats,
    "Latest": _latest,
}


def _in_turns(records: Sequence[Record], most: int) -> Iterator[tuple[str, Record]]:
    """Yield records with their headings, `most` for each: no room is left after that many."""
    for turn in zip_longest(*(order(records)[:most] for order in _HEADINGS.values())):
        yield from ((heading, record) for heading, record in zip(_HEADINGS, turn, strict=True) if record is not None)
