"""What an agent may say: one tool call a reply, as a JSON object."""

import json
import re
from typing import Any, Literal

from pydantic import Field, ValidationError

from automcu_ray.core.models import FrozenModel, rule

REPLY_CHARS = 300_000
_OBJECT = re.compile(r'\{\s*"')  # a brace in prose, or in C, is none

Tool = Literal["read", "write", "list", "run", "submit"]


class Action(FrozenModel):
    """One tool call; what a tool does not need stays empty."""

    tool: Tool
    path: str = Field(default="", max_length=200)
    content: str = Field(default="", max_length=REPLY_CHARS)
    command: str = Field(default="", max_length=8000)
    offset: int = Field(default=0, ge=0, le=10**8)


class UnusableAction(ValueError):
    """A reply without a tool call; the message is for the agent."""


def schema() -> dict[str, Any]:
    """Return the JSON schema of an action, for engines that can enforce one."""
    return Action.model_json_schema()


def read_action(text: str) -> Action:
    """Return the first tool call in a reply.

    Raises:
        UnusableAction: there is none, or one that is not of this form.
    """
    start = _OBJECT.search(text[:REPLY_CHARS])
    if not start:
        raise UnusableAction("a reply is one JSON object with the key tool, found none")
    try:
        found, _ = json.JSONDecoder(strict=False).raw_decode(text[: 2 * REPLY_CHARS], start.start())
        return Action.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))[:60]
        raise UnusableAction(f"{where}: {rule(first)}"[:300]) from error
    except (ValueError, RecursionError) as error:
        raise UnusableAction(f"the JSON object cannot be read: {str(error)[:200]}") from error
