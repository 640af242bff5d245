"""Recorded calls to an engine, and the tape that gives their replies back to equal requests."""

from collections import deque
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from automcu_ray.errors import ConfigError
from automcu_ray.target import Frozen
from searchers.engines.base import Begun, Reply, Request


class Call(Frozen):
    """One line of `<run>/llm/calls.jsonl`: who was asked, what, when (seconds since 1970), and what came back.

    `key` is the request's: equal for equal requests.
    """

    key: str
    engine: str
    model: str
    is_language_model: bool
    time_s: float
    request: Request
    reply: Reply


class Tape:
    """Replies of recorded calls: equal requests get theirs back, first recorded first, each at most once.

    `begun` maps a conversation to how it began, by its last call: one that a kill cut short may have begun twice.
    """

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        self.begun: dict[int, Begun] = {}
        self._replies: dict[str, deque[Reply]] = {}
        for call in calls:
            self._replies.setdefault(call.key, deque()).append(call.reply)
            if call.request.talk:
                self.begun[call.request.talk] = call.request.begun

    def take(self, request: Request) -> Reply | None:
        """Return the next reply to an equal request, or None where there is none (left); safe between threads."""
        try:
            return self._replies[request.key].popleft()
        except (KeyError, IndexError):
            return None


def read_calls(path: Path) -> tuple[list[Call], int]:
    """Return the calls in a calls.jsonl, and the bytes they take: less than the file where its last line was cut.

    Raises:
        ConfigError: the file cannot be read, or a whole line in it is no call.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"no recorded calls in {path}: {error.strerror}.") from error
    whole = data[: data.rfind(b"\n") + 1]
    calls = []
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        try:
            calls.append(Call.model_validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "line"
            raise ConfigError(f"{path} line {number} is not a recorded call: {where}: {first['msg']}.") from error
    return calls, len(whole)
