"""An engine that plays from a script: for each attempt the tool calls, one a request."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from searchers.engines.base import Engine, Message, Reply, Request

SUBMIT = {"tool": "submit"}


def write(path: str, content: str) -> dict[str, Any]:
    return {"tool": "write", "path": path, "content": content}


class ScriptedEngine(Engine):
    """Answers a request with the next call of its attempt, and submits where the script has no more.

    `heard` are the first messages of each attempt.
    """

    name = model = "scripted"

    def __init__(self, script: Mapping[int, Sequence[Any]]) -> None:
        self.script = script
        self.heard: dict[int, tuple[Message, ...]] = {}
        self.requests: list[Request] = []

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        self.requests += requests
        return [self._reply(request) for request in requests]

    def _reply(self, request: Request) -> Reply:
        said = sum(message.role == "assistant" for message in request.messages)
        self.heard.setdefault(request.talk, request.messages)
        calls = self.script.get(request.talk, ())
        call = calls[said] if said < len(calls) else SUBMIT
        if isinstance(call, Reply):
            return call
        return Reply(text=call if isinstance(call, str) else json.dumps(call), completion_tokens=10)
