"""A recorded run as an engine: a request that was made then gets its recorded reply, without any model."""

from collections.abc import Sequence
from pathlib import Path

from automcu_ray.core.errors import ConfigError
from searchers.engines.base import Engine, Reply, Request
from searchers.engines.recording.recorded_calls import RecordedCalls, read_beginnings, read_calls


class ReplayEngine(Engine):
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
        places = (path, path / "calls.jsonl", path / "llm" / "calls.jsonl")
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            raise ConfigError(
                f"no recorded calls in {path}: engine.path wants a run's folder, its llm folder, or a calls.jsonl."
            )
        self.path = found.resolve()  # `runs/latest` soon means another run
        calls, _ = read_calls(self.path)
        if not calls:
            raise ConfigError(f"no recorded calls in {self.path}: it is empty. Give engine.path another run.")
        self.name, self.model = calls[-1].engine, calls[-1].model
        self.is_language_model = calls[-1].is_language_model
        self.priced = any(call.reply.usd for call in calls)
        self._recorded_calls = RecordedCalls(calls)
        self.recorded, _ = read_beginnings(self.path)

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        replies = []
        for request in requests:
            why = (
                f"no reply is recorded for this {request.role} request (conversation {request.talk}, seed "
                f"{request.seed}) in {self.path}: the configuration or the code differs from the recorded run's"
            )
            replies.append(self._recorded_calls.take(request) or Reply.failed(why, model=self.model))
        return replies
