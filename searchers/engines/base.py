"""What every engine is: a batch of requests in, as many replies out, in the same order."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, field_validator

from automcu_ray.frozen import Frozen

_ERROR_CHARS = 300


class Message(Frozen):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class Begun(Frozen):
    """How a conversation began: what whoever repeats a recorded run has to repeat.

    `known` are the numbers of the records learned since the conversation before it, in order; `size` is how many
    candidates it was to propose.
    """

    known: tuple[int, ...] = ()
    size: int = 1


class Request(Frozen):
    """One question to an engine.

    `role` says in the log what it was for: generator, improver, repair. `json_schema` asks for a JSON object
    of that form; an engine that cannot enforce it puts it in words, and the caller validates either way.
    `talk` tells no model anything, but requests that differ in it are not equal: the conversation that it belongs to,
    counted from 1.
    """

    role: str
    talk: int = Field(default=0, ge=0)
    messages: tuple[Message, ...] = Field(min_length=1)
    json_schema: dict[str, Any] | None = None
    seed: int = 0
    temperature: float = 0.7
    top_p: float = 0.9
    max_tokens: int = Field(default=2048, ge=1)

    @property
    def key(self) -> str:
        """16 hex digits that are equal for equal requests: what a recorded reply is found by."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Reply(Frozen):
    """One answer; with finish_reason "error" there is no text, and `error` says why in one line.

    "length" means cut off at max_tokens: a failure for whoever wants whole JSON. Token counts are the
    engine's own; 0 where it does not tell. `cached_tokens` is the part of `prompt_tokens` that a prefix cache
    answered.
    """

    text: str = ""
    finish_reason: str = "stop"
    error: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    usd: float = 0.0
    model: str = ""

    @classmethod
    def failed(cls, reason: Exception | str, *, model: str = "", seconds: float = 0.0) -> "Reply":
        """Return the Reply that tells a failure in one line."""
        text = reason if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
        return cls(finish_reason="error", error=" ".join(text.split())[:_ERROR_CHARS], model=model, seconds=seconds)

    @field_validator("text", "error")
    @classmethod
    def _encodable(cls, value: str) -> str:
        """Replace lone surrogates: no file could be written with them."""
        return value.encode("utf-8", "replace").decode()


class Engine(ABC):
    """Turns messages into text.

    Engines travel in a searcher's pickled state: no lock, client or key in attributes.

    Attributes: `model` is what answers, by its own name. `instant`: it answers in milliseconds, so nobody needs to
    wait in a thread. `gpus` is the share of a GPU that it reserves in Ray. `priced`: its replies say what they cost in
    money. `recorded` says how the conversations began that it answers from a recording; begun otherwise, they get no
    reply from there. `only_recorded`: others get none at all.
    """

    name = "engine"
    model: str = ""
    is_language_model = True
    instant = False
    gpus: float = 0.0
    priced = False
    recorded: Mapping[int, Begun] = MappingProxyType({})
    only_recorded = False

    @abstractmethod
    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        """Return one reply a request, in order; may block, and may be called from several threads at once.

        A request that fails is a Reply with finish_reason "error", so that it costs none of the others.
        """

    def begin(self, talk: int, begun: Begun) -> None:  # noqa: B027 - only a log wants to know
        """Take note that a conversation begins, before its first request."""

    def close(self) -> None:  # noqa: B027 - most engines hold nothing open
        """Free what the engine holds: a server, an actor, GPU memory."""
