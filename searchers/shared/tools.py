"""What agents that share a conversation may call: one tool a reply, each the tool of one role."""

from typing import Any, Literal

from pydantic import Field, ValidationError

from automcu_ray.core.models import FrozenModel, Int64, rule
from searchers.dialogue.reply_parsing import read_object, unusable
from searchers.engines.base import Reply

_LINE_CHARS = 4000

Role = Literal["proposal", "evaluation", "training", "supervisor"]
Tool = Literal["propose", "evaluate", "train", "deploy"]
ROLES: dict[Tool, Role] = {
    "propose": "proposal",
    "evaluate": "evaluation",
    "train": "training",
    "deploy": "supervisor",
}


class ToolCall(FrozenModel):
    """One call: whose it is, which tool, and a network (a line or JSON) for `propose`, a number for all others."""

    role: Role
    tool: Tool
    network: str | dict[str, Any] = Field(default="", max_length=_LINE_CHARS)
    number: Int64 | None = None


def schema() -> dict[str, Any]:
    """Return the JSON schema of a call, for engines that can enforce one; whose tool it is they have to know."""
    return {
        "type": "object",
        "properties": {
            "role": {"enum": sorted(set(ROLES.values()))},
            "tool": {"enum": list(ROLES)},
            "network": {"type": "string"},
            "number": {"type": "integer", "minimum": 1},
        },
        "required": ["role", "tool"],
        "additionalProperties": False,
    }


def read_call(reply: Reply) -> ToolCall:
    """Return the call in a reply.

    Raises:
        UnusableReply: the engine failed, or the reply holds no call of this form.
    """
    try:
        return ToolCall.model_validate(read_object(reply))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise unusable(f"{'.'.join(map(str, first['loc']))[:60]}: {rule(first)}"[:300]) from error
