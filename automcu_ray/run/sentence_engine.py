"""A sentence as the task, read by a language model: a form of fixed fields, each with the words that it is based on.

What it fills in counts for nothing before it is checked: names must exist, quotations must stand in the sentence,
amounts must have digits and a unit, and what the grammar reads otherwise is a question. Nothing but the form comes out.
"""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, Field, ValidationError

from automcu_ray.core.models import FrozenModel
from automcu_ray.runtime import vocabulary as words
from automcu_ray.runtime.config_files import names
from automcu_ray.runtime.sentence import Heard, Reading, Understood, plain, understand
from automcu_ray.runtime.units import BYTES, NUMBER, SECONDS, number
from searchers.dialogue.prompts import render
from searchers.engines.base import Engine, Message, Reply, Request

_MOST_TOKENS, _QUOTE_CHARS = 400, 120
_SHARES = {"": 1.0, "%": 0.01, "percent": 0.01, "prozent": 0.01, "por ciento": 0.01, "pour cent": 0.01}
_COUNTS = {"": 1.0, "k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "millions": 1e6, "mio": 1e6, "millionen": 1e6}
_MONEY = {"": 1.0, "$": 1.0, "usd": 1.0, "dollar": 1.0, "dollars": 1.0, "cent": 0.01, "cents": 0.01}
_UNITS: dict[str, tuple[dict[str, float], str]] = {  # of the fields that are amounts, with an example
    "ram": (BYTES, "32 KB"),
    "flash": (BYTES, "64 KB"),
    "accuracy": (_SHARES, "97 %"),
    "error": (_SHARES, "3 %"),
    "latency": (SECONDS, "20 ms"),
    "instructions": (_COUNTS, "2 million"),
    "time": (SECONDS, "10 min"),
    "money": (_MONEY, "$2"),
}
_AMOUNT = re.compile(rf"(\$?)\s*({NUMBER})\s*(\$|%|[a-zµ ]*)(?:\s|$)", re.IGNORECASE)
_TWINS = (("ram", "flash"), ("latency", "time"))  # one amount is not both


class _Form(FrozenModel):
    """What an engine answers; "" where the sentence does not say."""

    model_config = ConfigDict(extra="forbid")

    task: str
    task_words: str = Field(max_length=_QUOTE_CHARS)
    board: str
    board_words: str = Field(max_length=_QUOTE_CHARS)
    ram: str = Field(max_length=_QUOTE_CHARS)
    flash: str = Field(max_length=_QUOTE_CHARS)
    accuracy: str = Field(max_length=_QUOTE_CHARS)
    error: str = Field(max_length=_QUOTE_CHARS)
    latency: str = Field(max_length=_QUOTE_CHARS)
    instructions: str = Field(max_length=_QUOTE_CHARS)
    time: str = Field(max_length=_QUOTE_CHARS)
    money: str = Field(max_length=_QUOTE_CHARS)
    objective: str
    precision: str
    folder: str = Field(max_length=_QUOTE_CHARS)


class _UnusableError(ValueError):
    """An answer that counts for nothing, and why."""


def read_sentence(engine: Engine, sentence: str, given: Mapping[str, str | None] | None = None) -> Reading:
    """Return what a sentence asks for, where the grammar leaves something open as an engine reads it.

    A sentence that the grammar understands to the last word costs no question to the engine. One that the engine does
    not answer usably is the grammar's alone, and `said` says why.
    """
    alone = understand(sentence, given)
    if not alone.questions and not alone.passed_over:
        return Reading(alone)
    reply = Reply()
    try:
        reply = engine.complete([request(sentence)])[0]
        heard, unread = _heard(reply, plain(sentence).lower(), alone, engine.name)
    except _UnusableError as error:
        return Reading(
            alone, f"engine {engine.name} is of no use here ({error}): read by the grammar alone", reply.cost
        )
    except Exception as error:  # engines should not raise; a new one might
        broken = Reply.failed(error).error
        return Reading(
            alone, f"engine {engine.name} is of no use here ({broken}): read by the grammar alone", reply.cost
        )
    both = understand(sentence, given, heard)
    questions = {**both.questions, **{key: said for key, said in unread.items() if key not in both.questions}}
    quoted = [one.shown.rpartition(",")[0].lower() for one in heard.values()]
    passed = [word for word in both.passed_over if not any(word in quote or quote in word for quote in quoted)]
    tokens = f"{reply.prompt_tokens + reply.completion_tokens} tokens"
    said = f"read by the grammar, and by engine {engine.name} ({reply.model or engine.model}, {tokens})"
    return Reading(Understood(both.wish, questions, passed), said, reply.cost)


def request(sentence: str) -> Request:
    """Return the question to an engine."""
    tasks = {name: words.TASKS.get(name, ()) for name in names("task")}
    boards = {name: words.BOARDS.get(name, ()) for name in names("target")}
    messages = (
        Message(role="system", content=render("sentence_system")),
        Message(role="user", content=render("sentence", tasks=tasks, boards=boards, sentence=plain(sentence))),
    )
    return Request(role="sentence", messages=messages, json_schema=_schema(), temperature=0.0, max_tokens=_MOST_TOKENS)


def _schema() -> dict[str, Any]:
    lists = {
        "task": names("task"),
        "board": names("target"),
        "objective": list(words.OBJECTIVES),
        "precision": list(words.PRECISIONS),
    }
    quotation = {"type": "string", "pattern": rf"^[^\x00-\x1f]{{0,{_QUOTE_CHARS}}}$"}
    fields = {
        name: {"type": "string", "enum": ["", *lists[name]]} if name in lists else quotation
        for name in _Form.model_fields
    }
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _heard(reply: Reply, low: str, alone: Understood, engine: str) -> tuple[dict[str, Heard], dict[str, str]]:
    """Return what an answer says of a sentence, by the fields of a wish, and questions about what it quotes.

    Raises:
        _UnusableError: there is no whole answer, or it says what the sentence does not.
    """
    form = _form(reply, low)
    reads = f"as engine {engine} reads it"
    named = {
        "task": (form.task, form.task_words),
        "target": (form.board, form.board_words),
        "objective": (form.objective, form.objective),
        "precision": (form.precision, form.precision),
        "folder": (form.folder if "/" in form.folder else "", form.folder),
    }
    found = {what: Heard(value, f"{quoted.strip()}, {reads}") for what, (value, quoted) in named.items() if value}
    unread: dict[str, str] = {}
    for name, (units, example) in _UNITS.items():
        quoted = getattr(form, name).strip()
        if not quoted:
            continue
        amount = _amount(quoted, units)
        what = "accuracy" if name == "error" else name
        if amount is None or (what == "accuracy" and not 0 < amount < 1):
            unread[what] = f"{what}: {quoted!r} is no amount that is understood; how much, such as {example}?"
        elif twin := _twin(what, round(amount), quoted.lower(), low, alone):
            unread[what] = f"{quoted}: {what}, {reads}, or {twin}?"
        else:
            value = round(1 - amount, 6) if name == "error" else round(amount) if units is BYTES else round(amount, 6)
            found[what] = Heard(value, f"{quoted}, {reads}")
    return found, unread


def _form(reply: Reply, low: str) -> _Form:
    """Return an answer whose names exist and whose quotations stand in the sentence.

    Raises:
        _UnusableError: it is another one.
    """
    if reply.finish_reason != "stop":
        raise _UnusableError(reply.error or f"its answer ended by {reply.finish_reason!r}")
    try:
        form = _Form.model_validate_json(reply.text)
    except ValidationError:
        raise _UnusableError("its answer is not the form that was asked for") from None
    for name, value in form:
        choices = _schema()["properties"][name].get("enum")
        if choices is not None and value not in choices:
            raise _UnusableError(f"it names the {name} {value[:40]!r}, which is none")
        if choices is None and " ".join(value.lower().split()) not in low:
            raise _UnusableError(f"it quotes {value[:40]!r}, which the sentence does not say")
    for name, quoted in ((form.task, form.task_words), (form.board, form.board_words)):
        if name and not quoted.strip():
            raise _UnusableError(f"it names {name}, and no word of the sentence for it")
    return form


def _amount(quoted: str, units: Mapping[str, float]) -> float | None:
    """Return the first amount of a quotation in bytes, seconds, shares or pieces; None without digits or known unit."""
    found = _AMOUNT.search(quoted)
    unit = "" if found is None else (found[1] or found[3].strip().lower())
    if found is None or unit not in units:
        return None
    value = number(found[2])
    return value / 100 if units is _SHARES and not unit and value > 1 else value * units[unit]


def _twin(what: str, amount: int, quoted: str, low: str, alone: Understood) -> str:
    """Return the field for which the grammar takes an amount that the sentence says once; "" for none."""
    for pair in _TWINS:
        if what in pair:
            other = pair[1 - pair.index(what)]
            if getattr(alone.wish, other) == amount and low.count(quoted) == 1:
                return other
    return ""
