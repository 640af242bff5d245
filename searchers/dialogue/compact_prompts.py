"""The prompts of the compact form: rows of what is known, candidates as one line each, a plan before them."""

from collections.abc import Sequence
from typing import Any

from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.record import Record
from searchers.dialogue import prompts, rows
from searchers.dialogue.feedback_memory import Memory
from searchers.dialogue.reply_schemas import Advice, networks_schema
from searchers.dialogue.rows import Known
from searchers.engines.base import Message, Prompt, Subject


def designer(known: Known, size: int, tokens: int, memory: Memory | None = None) -> Prompt:
    """Return the prompt of the one role that reads what is known and proposes: about `tokens` tokens of rows.

    With a memory its lessons (the last K triples, with changes and effects) stand below the rows.
    """
    best = known.best
    about = {
        "reference": best.candidate.spec if best else None,
        "result": best,
        "records": tuple(known.records),
        "size": size,
    }
    if best is None and not known.records and known.task.form == "network":
        about["reference"] = prompts.starting_candidate(known.task).spec
    view = {"shown": rows.rows(known, tokens), "memory": memory, "size": size, "example": _example(known)}
    return _prompt("designer", known, about, **view)


def adviser(known: Known, memory: Memory, *, reference: bool) -> Prompt:
    """Return the improver's prompt: reference and latest network, what is under way, the last lessons."""
    record = memory.reference[1] if reference else None
    current = memory.current
    assert current is not None, "before the first record there is nothing to improve"
    view = {
        "shown": _short(known, (record, current), 0),
        "reference": record,
        "current": current,
        "memory": memory,
    }
    return _prompt("adviser", known, _about(known, memory, reference), **view)


def builder(
    known: Known,
    memory: Memory,
    advice: Advice | None,
    size: int,
    *,
    reference: bool,
    top: int = 0,
    tokens: int = 0,
) -> Prompt:
    """Return the generator's prompt: the reference and the suggestion; the lessons where there is no improver.

    About `tokens` tokens of rows say what was tried, so that it is not proposed again. `top` adds as many of the best,
    and the last attempts: for models with a long context.
    """
    record = memory.reference[1] if reference else None
    told: tuple[Record | None, ...] = (record,)
    if advice is None:
        told = (record, memory.current)
    if top:
        told = (*told, *memory.top, *memory.recent)
    first = memory.current is None
    view = {
        "shown": [] if first and not known.pending else _short(known, told, tokens),
        "reference": record,
        "memory": memory,
        "advice": advice,
        "size": size,
        "example": _example(known),
    }
    about = {**_about(known, memory, reference), "suggested": advice and advice.network, "size": size}
    return _prompt("builder", known, about, **view)


def schema(known: Known, size: int) -> dict[str, Any]:
    """Return the JSON schema of a reply: a plan, then lines of the notation, those that were tried left out."""
    tried = {known.notation.write(one) for one in (*(r.candidate for r in known.records), *known.pending)} - {""}
    return networks_schema(known.notation.pattern(tried), size)


def _about(known: Known, memory: Memory, reference: bool) -> dict[str, Any]:
    """Return what rules work by, as in the prompts of the JSON form."""
    candidate, record = memory.reference if reference else (None, None)
    if candidate is None and reference and known.task.form == "network":
        candidate = prompts.starting_candidate(known.task)
    return {
        "reference": candidate.spec if candidate else None,
        "result": record,
        "current": memory.current,
        "since_best": memory.since_best,
        "records": memory.recent,
    }


def _short(known: Known, records: Sequence[Record | None], tokens: int) -> list[str]:
    """Return the rows of a few records, each once, and others as far as `tokens` go; then what is under way."""
    if tokens:
        return rows.rows(known, tokens, [record for record in records if record is not None], effects=False)
    told = {record.candidate.number: record for record in records if record is not None}
    return [
        *(rows.row(record, known, effects=False) for record in told.values()),
        *(rows.pending_row(candidate, known) for candidate in known.pending),
    ]


def _example(known: Known) -> str:
    """Return a small network with the sizes that it is expected to have: code and stack are not zero."""
    if known.task.form != "network":
        return ""
    example: Candidate = prompts.starting_candidate(known.task)
    expected = known.expect(example)
    told = f", {rows.sizes(expected)} KB" if expected else ""
    return f"An example, far too small: {known.notation.write(example)}{told}."


def _prompt(role: str, known: Known, about: dict[str, Any], **view: Any) -> Prompt:
    blind = getattr(known.notation, "blind", False)
    system = Message(role="system", content=prompts.render(f"{role}_system", known=known, blind=blind))
    said = Message(role="user", content=prompts.render(role, known=known, blind=blind, **view))
    return Prompt((system, said), Subject(task=known.task, **about))
