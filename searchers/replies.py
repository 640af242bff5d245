"""Reads what an engine wrote: hostile text, of which one JSON object of a known form is wanted."""

import json
import re
from typing import Any

from pydantic import ValidationError

from automcu_ray.feasibility import Rung, Violation
from automcu_ray.graph import ConstructibilityError
from automcu_ray.record import Candidate
from automcu_ray.space import Space
from automcu_ray.spec import ArchitectureSpec, explain
from searchers.engines.base import Reply
from searchers.prompting import Advice

MAX_CHARS = 16_000  # four times what a spec of 40 layers needs
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
    try:
        return space.candidate(ArchitectureSpec.model_validate(read_object(reply)))
    except ConstructibilityError as error:
        raise UnusableReply(error.violation) from error
    except ValidationError as error:
        raise _unusable(explain(error)) from error


def read_advice(reply: Reply) -> Advice:
    """Return the problem and the suggestion in an improver's reply.

    Raises:
        UnusableReply: no JSON object with both.
    """
    try:
        return Advice.model_validate(read_object(reply))
    except ValidationError as error:
        raise _unusable(explain(error)) from error


def read_object(reply: Reply) -> dict[str, Any]:
    """Return the first JSON object in a reply, whatever fences, thoughts or prose stand around it.

    Raises:
        UnusableReply: the engine failed, the reply was cut off, is too long, or holds no object.
    """
    if reply.finish_reason == "error":
        raise UnusableReply(Violation(rung=Rung.SCHEMA, resource="engine", message=f"engine: {reply.error}"))
    if reply.finish_reason == "length":
        raise _unusable("the reply was cut off at the limit of tokens: answer shorter")
    text = reply.text.rpartition("</think>")[2]
    if len(text) > MAX_CHARS:
        raise _unusable(f"the reply has {len(text)} characters, more than {MAX_CHARS}")
    start = _OBJECT.search(text)
    if start is None:
        raise _unusable("no JSON object in the reply")
    try:
        found: dict[str, Any] = json.JSONDecoder().raw_decode(text, start.start())[0]
        json.dumps(found, ensure_ascii=False).encode()  # an escaped lone surrogate could not be journalled
    except (ValueError, RecursionError) as error:
        raise _unusable(f"not a JSON object: {error}") from error
    return found


def _unusable(message: str) -> UnusableReply:
    return UnusableReply(Violation(rung=Rung.SCHEMA, resource="schema", message=message[:500]))
