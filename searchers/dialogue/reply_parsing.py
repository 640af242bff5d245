"""Reads what an engine wrote: hostile text, of which one JSON object of a known form is wanted."""

import json
import re
from typing import Any

from pydantic import ValidationError

from automcu_ray.core.feasibility import Rung, Violation
from automcu_ray.networks import code_screening
from automcu_ray.networks.candidate import Candidate, Diagnosis, GeneratedCode
from automcu_ray.networks.graph import ConstructibilityError
from automcu_ray.networks.search_space import Space
from automcu_ray.networks.spec import ArchitectureSpec, explain
from searchers.dialogue.notations import Notation, why
from searchers.dialogue.reply_schemas import PLAN_CHARS, Advice
from searchers.engines.base import Reply

MAX_CHARS = 16_000  # four times what a spec of 40 layers needs
REPLY_CHARS = 500  # of a text that could not be read, for the record
_OBJECT = re.compile(r'\{\s*"')  # a brace in prose is none


class UnusableReply(ValueError):
    """A reply that is not what was asked for; `violation` says why, in words for the engine that wrote it."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.message)
        self.violation = violation


def read_candidate(reply: Reply, space: Space) -> Candidate:
    """Return the candidate in a generator's reply.

    Raises:
        UnusableReply: no JSON object, not a spec, or a spec that cannot be built.
    """
    return _candidate(read_object(reply), space)


def read_candidates(reply: Reply, space: Space, count: int) -> tuple[list[Candidate], list[Candidate]]:
    """Return the candidates in a proposer's reply, at most `count`: the sound ones, and the others with the reason.

    Raises:
        UnusableReply: no JSON object, or no list of candidates in it.
    """
    found = read_object(reply).get("candidates")
    if not isinstance(found, list) or not found:
        raise unusable(f'"candidates" must be a list of {count} networks, found {str(found)[:60]!r}')
    good, bad = [], []
    for entry in found[:count]:
        try:
            good.append(_candidate(entry, space))
        except UnusableReply as error:
            bad.append(Candidate(violations=(error.violation,), reply=json.dumps(entry)[:REPLY_CHARS]))
    return good, bad


def read_networks(reply: Reply, notation: Notation, count: int) -> tuple[list[Candidate], list[Candidate]]:
    """Return the candidates of a reply in the compact form, at most `count`: the sound ones, and the others.

    Lines of the notation are wanted; networks as JSON are understood too. A sound candidate keeps the reply's plan.

    Raises:
        UnusableReply: no JSON object, or no networks in it.
    """
    answer = read_object(reply)
    found = next((answer[key] for key in ("networks", "candidates", "network") if key in answer), [answer])
    found = found if isinstance(found, list) else [found]
    if not found:
        raise unusable(f'"networks" must be a list of {count} {notation.noun}s, found none')
    plan = answer.get("plan")
    about = {"diagnosis": Diagnosis(problem="", suggestion=plan[:PLAN_CHARS])} if isinstance(plan, str) and plan else {}
    good, bad = [], []
    for entry in found[:count]:
        try:
            good.append(read_one(entry, notation).replace(**about))
        except UnusableReply as error:
            bad.append(Candidate(violations=(error.violation,), reply=json.dumps(entry)[:REPLY_CHARS]))
    return good, bad


def read_one(entry: Any, notation: Notation) -> Candidate:
    """Return the candidate that a line, or its JSON, stands for.

    Raises:
        UnusableReply: it is none, or cannot be built.
    """
    try:
        return notation.read(entry)
    except ConstructibilityError as error:
        raise UnusableReply(error.violation) from error
    except ValueError as error:
        raise unusable(why(error)) from error


def read_code(reply: Reply) -> Candidate:
    """Return the candidate in a generator's reply of PyTorch code; nothing of it is run here.

    Raises:
        UnusableReply: no class Net, or code that the static screen refuses.
    """
    try:
        code = code_screening.extract(_text(reply))
        code_screening.screen(code)
    except code_screening.CodeError as error:
        raise unusable(str(error)) from error
    return Candidate(network=GeneratedCode(code=code), hash=code_screening.code_hash(code))


def read_advice(reply: Reply) -> Advice:
    """Return the problem and the suggestion in an improver's reply.

    Raises:
        UnusableReply: no JSON object with both.
    """
    try:
        return Advice.model_validate(read_object(reply))
    except ValidationError as error:
        raise unusable(explain(error)) from error


def read_object(reply: Reply) -> dict[str, Any]:
    """Return the first JSON object in a reply, whatever fences, thoughts or prose stand around it.

    Raises:
        UnusableReply: the engine failed, the reply was cut off, is too long, or holds no object.
    """
    text = _text(reply)
    start = _OBJECT.search(text)
    if start is None:
        raise unusable("no JSON object in the reply")
    try:
        # Not strict: where a text has a longest length, xgrammar lets tabs into it.
        found: dict[str, Any] = json.JSONDecoder(strict=False).raw_decode(text, start.start())[0]
        json.dumps(found, ensure_ascii=False).encode()  # an escaped lone surrogate could not be journalled
    except (ValueError, RecursionError) as error:
        raise unusable(f"not a JSON object: {error}") from error
    return found


def _candidate(found: Any, space: Space) -> Candidate:
    try:
        return space.candidate(ArchitectureSpec.model_validate(found))
    except ConstructibilityError as error:
        raise UnusableReply(error.violation) from error
    except ValidationError as error:
        raise unusable(explain(error)) from error


def _text(reply: Reply) -> str:
    """Return what a reply says after its thoughts, if it may be looked at at all."""
    if reply.finish_reason == "error":
        raise UnusableReply(Violation(rung=Rung.SCHEMA, resource="engine", message=f"engine: {reply.error}"))
    if reply.finish_reason == "length":
        raise unusable("the reply was cut off at the limit of tokens: answer shorter")
    text = reply.text.rpartition("</think>")[2]
    if len(text) > MAX_CHARS:
        raise unusable(f"the reply has {len(text)} characters, more than {MAX_CHARS}")
    return text


def unusable(message: str) -> UnusableReply:
    """Return the error for a reply that is not what was asked for."""
    return UnusableReply(Violation(rung=Rung.SCHEMA, resource="schema", message=message[:500]))
