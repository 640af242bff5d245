"""A record of every call to an engine, one JSON line each: what was asked, what came back, what it cost."""

import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from searchers.engines.base import Begun, Engine, Reply, Request
from searchers.engines.recording.recorded_calls import (
    Beginning,
    Call,
    RecordedCalls,
    beginnings_path,
    read_beginnings,
    read_calls,
)


class LoggingEngine(Engine):
    """Passes requests on to another engine and appends each, with its reply, to `<run>/llm/calls.jsonl`.

    Each line is a `Call`. With `talks.jsonl` beside it, which says how each conversation began, that is all that
    `ReplayEngine` needs. When a run resumes, a request equal to a logged one gets the logged reply, once, and is
    neither paid for nor logged again; requests that failed are asked again. API keys are in no request, and engines
    keep them out of replies.

    Raises:
        ConfigError: a whole line of the file is no call; a cut last line is dropped.
    """

    def __init__(self, engine: Engine, path: Path) -> None:
        self.engine, self.path = engine, path.absolute()  # Tune changes the working directory
        self.name, self.model, self.is_language_model = engine.name, engine.model, engine.is_language_model
        self.instant, self.gpus, self.priced, self.free = engine.instant, engine.gpus, engine.priced, engine.free
        self.only_recorded, self.closed = engine.only_recorded, False
        calls, size = read_calls(self.path) if self.path.exists() else ([], 0)
        begun, begun_size = read_beginnings(self.path)
        _drop_cut_line(self.path, size)
        _drop_cut_line(beginnings_path(self.path), begun_size)
        self._recorded_calls = RecordedCalls(call for call in calls if call.reply.finish_reason != "error")
        self._written = set(begun)
        self.recorded = engine.recorded or begun
        self._lock = threading.Lock()

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        if self.closed:
            return [Reply.failed("the search is over", model=self.model) for _ in requests]
        replies = [self._recorded_calls.take(request) for request in requests]
        new = [request for request, reply in zip(requests, replies, strict=True) if reply is None]
        fresh = self.engine.complete(new) if new else []
        lines = []
        for request, reply in zip(new, fresh, strict=True):
            call = Call(
                key=request.key,
                engine=self.name,
                model=self.model,
                is_language_model=self.is_language_model,
                time_s=round(time.time(), 3),
                request=request,
                reply=reply,
            )
            lines.append(json.dumps(call.model_dump(mode="json"), separators=(",", ":")) + "\n")
        self._append(self.path, lines)
        remaining = iter(fresh)
        return [next(remaining) if reply is None else reply for reply in replies]

    def begin(self, conversation: int, begun: Begun) -> None:
        if conversation not in self._written:
            self._written.add(conversation)
            line = Beginning(talk=conversation, begun=begun).model_dump_json() + "\n"
            self._append(beginnings_path(self.path), [line])

    def close(self) -> None:
        self.closed = True  # conversations still under way ask for nothing more
        self.engine.close()

    def _append(self, path: Path, lines: list[str]) -> None:
        with self._lock:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.writelines(lines)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


def _drop_cut_line(path: Path, whole_bytes: int) -> None:
    """Cut off an incomplete last line, as a kill leaves it, so that the next entry starts a line."""
    if path.exists() and whole_bytes < path.stat().st_size:
        os.truncate(path, whole_bytes)
