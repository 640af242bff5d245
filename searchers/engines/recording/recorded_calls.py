"""Recorded calls to an engine: their files, and their replies, given back to equal requests."""

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.models import FrozenModel
from searchers.engines.base import Begun, Reply, Request

_Line = TypeVar("_Line", bound=FrozenModel)


class Call(FrozenModel):
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


class Beginning(FrozenModel):
    """One line of `<run>/llm/talks.jsonl`: conversation number `talk`, written before it asks anything.

    A negative number is that of a candidate which was proposed without asking (`begun.free`).
    """

    talk: int
    begun: Begun


class RecordedCalls:
    """Replies of recorded calls: equal requests get theirs back, first recorded first, each at most once."""

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        self._replies: dict[str, deque[Reply]] = {}
        for call in calls:
            self._replies.setdefault(call.key, deque()).append(call.reply)

    def take(self, request: Request) -> Reply | None:
        """Return the next reply to an equal request, None where no more are left; safe between threads."""
        try:
            return self._replies[request.key].popleft()
        except (KeyError, IndexError):
            return None


def read_calls(path: Path) -> tuple[list[Call], int]:
    """Return the calls in a calls.jsonl, and the bytes they take: less than the file where its last line was cut.

    Raises:
        ConfigError: the file cannot be read, or a whole line in it is no call.
    """
    return _read(path, Call)


def read_beginnings(calls: Path) -> tuple[dict[int, Begun], int]:
    """Return how the conversations of a calls.jsonl began, by number, and the bytes of whole lines in their file.

    Raises:
        ConfigError: the file cannot be read, or a whole line in it is no `Beginning`.
    """
    path = beginnings_path(calls)
    rows, size = _read(path, Beginning) if path.exists() else ([], 0)
    return {row.talk: row.begun for row in rows}, size


def beginnings_path(calls: Path) -> Path:
    """Return the file that says how conversations began, beside the one that holds their calls."""
    return calls.with_name("talks.jsonl")


def _read(path: Path, form: type[_Line]) -> tuple[list[_Line], int]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"no recorded calls in {path}: {error.strerror}.") from error
    whole = data[: data.rfind(b"\n") + 1]
    rows = []
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        try:
            rows.append(form.model_validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "line"
            raise ConfigError(f"{path} line {number} is not a recorded call: {where}: {first['msg']}.") from error
    return rows, len(whole)
