"""A record of every call to an engine, one JSON line each: what was asked, what came back, what it cost."""

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from searchers.engines.base import Engine, Reply, Request


class LoggedEngine(Engine):
    """Passes requests on to another engine and appends each, with its reply, to `<run>/llm/calls.jsonl`.

    A line holds `key` (equal for equal requests), `engine`, `time_s`, `request` and `reply`: enough for a
    cassette to answer the same requests later. API keys never come here: they are in no request, and engines
    keep them out of replies.
    """

    def __init__(self, engine: Engine, path: Path) -> None:
        self.engine, self.path = engine, path.absolute()  # Tune changes the working directory
        self.name, self.is_language_model, self.instant = (
            engine.name,
            engine.is_language_model,
            engine.instant,
        )
        self._lock = threading.Lock()

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        replies = self.engine.complete(requests)
        lines = [self._line(request, reply) for request, reply in zip(requests, replies, strict=True)]
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(lines)
        return replies

    def close(self) -> None:
        self.engine.close()

    def _line(self, request: Request, reply: Reply) -> str:
        row = {
            "key": request.key,
            "engine": self.name,
            "time_s": round(time.time(), 3),
            "request": request.model_dump(mode="json"),
            "reply": reply.model_dump(mode="json"),
        }
        return json.dumps(row, separators=(",", ":")) + "\n"

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())
