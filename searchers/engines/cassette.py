"""A recorded run as an engine: every request that was made then gets the reply of then, without any model."""

from collections.abc import Sequence
from pathlib import Path

from automcu_ray.errors import ConfigError
from searchers.engines.base import Engine, Reply, Request
from searchers.engines.tape import Tape, read_beginnings, read_calls


class CassetteEngine(Engine):
    """Answers from the calls of a recorded run; name, model and costs are the recorded ones.

    A request finds its reply by `Request.key`: any other seed, prompt or schema has none, and that is a Reply with
    an error. Equal requests get their replies in the order in which they were recorded.

    Args:
        path: a run's folder, its `llm` folder, or a `calls.jsonl`.
    """

    instant = True
    only_recorded = True

    def __init__(self, *, path: Path | None = None) -> None:
        if path is None:
            raise ConfigError("engine 'cassette' needs engine.path: the folder of a recorded run, found none.")
        self.path = _calls_file(path)
        calls, _ = read_calls(self.path)
        if not calls:
            raise ConfigError(f"no recorded calls in {self.path}: it is empty. Give engine.path another run.")
        self.name, self.model = calls[-1].engine, calls[-1].model
        self.is_language_model = calls[-1].is_language_model
        self.priced = any(call.reply.usd for call in calls)
        self._tape = Tape(calls)
        self.recorded, _ = read_beginnings(self.path)

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        return [self._tape.take(request) or self._missing(request) for request in requests]

    def _missing(self, request: Request) -> Reply:
        reason = (
            f"no reply is recorded for this {request.role} request (conversation {request.talk}, seed {request.seed}) "
            f"in {self.path}: the configuration or the code differs from the recorded run's"
        )
        return Reply.failed(reason, model=self.model)


def _calls_file(path: Path) -> Path:
    """Return the file of calls that a path stands for, as a real path: `runs/latest` soon means another run.

    Raises:
        ConfigError: there is none.
    """
    for file in (path, path / "calls.jsonl", path / "llm" / "calls.jsonl"):
        if file.is_file():
            return file.resolve()
    raise ConfigError(
        f"no recorded calls in {path}: engine.path wants a run's folder, its llm folder, or a calls.jsonl."
    )
