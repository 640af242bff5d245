"""A record of every call to an engine, one JSON line each: what was asked, what came back, what it cost."""

import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from searchers.engines.base import Engine, Reply, Request
from searchers.engines.tape import Call, Tape, read_calls


class LoggedEngine(Engine):
    """Passes requests on to another engine and appends each, with its reply, to `<run>/llm/calls.jsonl`.

    A line is a `Call`: enough for a cassette to answer the same requests later. What the file holds when a run
    goes on after a kill has been paid for: an equal request gets that answer, once, and no second line; only
    requests that failed are asked again. API keys never come here: they are in no request, and engines keep them
    out of replies.

    Raises:
        ConfigError: a whole line of the file is no call; a cut last line is dropped.
    """

    def __init__(self, engine: Engine, path: Path) -> None:
        self.engine, self.path = engine, path.absolute()  # Tune changes the working directory
        self.name, self.model, self.is_language_model = engine.name, engine.model, engine.is_language_model
        self.instant, self.gpus = engine.instant, engine.gpus
        calls = self._mended_calls() if self.path.exists() else []
        self._tape = Tape(call for call in calls if call.reply.finish_reason != "error")
        self.recorded = engine.recorded or self._tape.begun
        self._lock = threading.Lock()

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        replies = [self._tape.take(request) for request in requests]
        new = [request for request, reply in zip(requests, replies, strict=True) if reply is None]
        fresh = self.engine.complete(new) if new else []
        self._append([self._line(request, reply) for request, reply in zip(new, fresh, strict=True)])
        remaining = iter(fresh)
        return [next(remaining) if reply is None else reply for reply in replies]

    def close(self) -> None:
        self.engine.close()

    def _mended_calls(self) -> list[Call]:
        """Return the calls of the file, whose next line then starts a line."""
        calls, size = read_calls(self.path)
        if size < self.path.stat().st_size:
            os.truncate(self.path, size)
        return calls

    def _append(self, lines: list[str]) -> None:
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(lines)

    def _line(self, request: Request, reply: Reply) -> str:
        call = Call(
            key=request.key,
            engine=self.name,
            model=self.model,
            is_language_model=self.is_language_model,
            time_s=round(time.time(), 3),
            request=request,
            reply=reply,
        )
        return json.dumps(call.model_dump(mode="json"), separators=(",", ":")) + "\n"

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())
