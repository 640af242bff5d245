"""What every engine is: a batch of requests in, as many replies out, in the same order."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from pydantic import Field, field_validator

from automcu_ray.core.cost import Cost
from automcu_ray.core.models import FrozenModel
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record

_ERROR_CHARS = 300


class Message(FrozenModel):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class Begun(FrozenModel):
    """What a conversation knew when it began; a replay begins it with the same.

    `known` are the numbers of the records learned since the conversation before it, in order; `size` is how many
    candidates it was asked for, `pending` the numbers of those under way, `left` how many more could be trained.
    `again` is how many conversations just before it knew nothing else, so that at temperature 0 they got its answer.
    `free` is what was proposed without asking anybody, in place of a conversation.
    """

    known: tuple[int, ...] = ()
    size: int = 1
    pending: tuple[int, ...] = ()
    left: int | None = None
    again: int = 0
    free: Candidate | None = None


class Subject(FrozenModel):
    """What a prompt was written from, for an engine that works by rules and reads no prose.

    Attributes:
        task: what is searched for.
        reference: the network to change, where the prompt shows one.
        result: what became of the reference; None where it was never tried.
        current: what became of the network before; None where the prompt is not about one.
        since_best: networks trained since the best one.
        records: the other records in the prompt, in its order.
        suggested: the JSON of the network that the advice comes to (`Advice.network`), unchecked.
        size: how many networks are wanted.
    """

    task: Task
    reference: ArchitectureSpec | None = None
    result: Record | None = None
    current: Record | None = None
    since_best: int = 0
    records: tuple[Record, ...] = ()
    suggested: Any = None
    size: int = 1


class Prompt(NamedTuple):
    """The messages of a request, and what they were written from."""

    messages: tuple[Message, ...]
    subject: Subject


class Request(FrozenModel):
    """One question to an engine.

    `role` says in the log what it was for: generator, improver, repair. `json_schema` asks for a JSON object
    of that form; an engine that cannot enforce it puts it in words, and the caller validates either way.
    `talk` is the number of the conversation that it belongs to, from 1 (0: none). Models do not see it, but it is part
    of the key. `subject` is neither logged nor part of the key: language models read the messages.
    """

    role: str
    talk: int = Field(default=0, ge=0)
    messages: tuple[Message, ...] = Field(min_length=1)
    subject: Subject | None = Field(default=None, exclude=True, repr=False)
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


class Reply(FrozenModel):
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

    @property
    def cost(self) -> Cost:
        """What it has cost."""
        return Cost(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
            llm_seconds=self.seconds,
            usd=self.usd,
        )

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

    Engines are pickled with their searcher: no lock, client or key in attributes.

    Attributes:
        model: what answers, by its own name.
        is_language_model: False for rules that stand in for one.
        calls_tools: it can answer with a call of a tool; rules that read no prompt cannot.
        reads_sentences: it can be asked before a run begins, and reads what people write.
        free: its answers cost nothing, so that nothing is gained by asking it less often.
        instant: it answers in milliseconds, so that no thread is needed.
        gpus: share of a GPU that it reserves in Ray.
        priced: its replies say what they cost in money.
        recorded: how the recorded conversations began, by number; begun otherwise, they get no recorded reply. What was
            proposed without asking stands under minus the number of its candidate.
        only_recorded: it answers nothing but what is recorded.
    """

    name = "engine"
    model: str = ""
    is_language_model = True
    calls_tools = True
    reads_sentences = False
    free = False
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

    def begin(self, conversation: int, begun: Begun) -> None:  # noqa: B027 - only a log needs it
        """Take note that a conversation, by its number, begins; called before its first request.

        A negative number is that of a candidate proposed without asking.
        """

    def close(self) -> None:  # noqa: B027 - most engines hold nothing open
        """Free what the engine holds: a server, an actor, GPU memory."""
