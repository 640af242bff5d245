"""Any OpenAI-compatible endpoint: OpenAI, DeepSeek, Qwen, a vLLM or llama.cpp server, Ollama."""

import asyncio
import json
import os
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import openai
import tenacity
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from automcu_ray.core.errors import ConfigError, EngineError
from searchers.engines.base import Engine, Message, Reply, Request

_RETRIED_STATUS = (408, 409, 429)  # and every 5xx
_REFUSED_FORMAT = (400, 422)  # what servers say to a response_format they do not know
_SECRET_CHARS = 8  # a shorter key (none, EMPTY, x) is no secret, and stands in sound replies
_MAX_WAIT_S = 60.0  # a Retry-After beyond this is cut: the run goes on without the reply
Form = Literal["tool", "format"]  # how an endpoint is told of a schema: as a function's, or as `response_format`
_FUNCTION = "answer"
Tokens = Annotated[int, Field(ge=0, le=10**9)]  # what a server says is checked like any other text


class Prices(NamedTuple):
    """US dollars per million tokens."""

    prompt: float
    cached: float
    completion: float


class OpenAIEngine(Engine):
    """Asks an endpoint that speaks OpenAI's chat completions; the key comes from OPENAI_API_KEY alone.

    Timeouts, dropped connections, 408, 409, 429 and 5xx are retried with exponential backoff and jitter, at
    least as late as Retry-After says; whatever is left is a Reply with an error. A server that refuses
    `response_format`, or functions, gets the schema in the next way that is left, at last in the prompt, from then on
    at once.

    Args:
        base_url: such as http://localhost:8000/v1; default AUTOMCU_BASE_URL, OPENAI_BASE_URL, then OpenAI
            itself.
        model: the model's name at that endpoint; default AUTOMCU_MODEL.
        timeout_s: for one attempt, all bytes of the reply included.
        attempts: how often one request is tried.
        backoff_s: the first wait between attempts; it doubles.
        concurrency: requests of one batch that are open at once.
        max_reply_bytes: a longer reply is dropped unread; an error without a length is read until `timeout_s`.
        json_schema: False: do not try `response_format`, put the schema in the prompt.
        tool_calls: ask for the arguments of a function that must be called, before `response_format` is tried.
        usd_per_million_prompt: price of prompt tokens.
        usd_per_million_cached: price of prompt tokens from the prefix cache; default the prompt price.
        usd_per_million_completion: price of completion tokens.
    """

    name = "openai"
    reads_sentences = True

    def __init__(
        self,
        *,
        base_url: str | None = None,
        model: str | None = None,
        timeout_s: float = 120.0,
        attempts: int = 4,
        backoff_s: float = 1.0,
        concurrency: int = 8,
        max_reply_bytes: int = 262_144,
        json_schema: bool = True,
        tool_calls: bool = False,
        usd_per_million_prompt: float = 0.0,
        usd_per_million_cached: float | None = None,
        usd_per_million_completion: float = 0.0,
    ) -> None:
        found = model or os.environ.get("AUTOMCU_MODEL")
        if not found:
            raise ConfigError("engine 'openai' needs a model: set engine.model or AUTOMCU_MODEL, found neither.")
        self.model = found
        self.base_url = base_url or os.environ.get("AUTOMCU_BASE_URL")
        self.timeout_s, self.attempts, self.backoff_s = timeout_s, max(1, attempts), backoff_s
        self.concurrency, self.max_reply_bytes = max(1, concurrency), max_reply_bytes
        self.json_schema, self.tool_calls = json_schema, tool_calls
        cached = usd_per_million_prompt if usd_per_million_cached is None else usd_per_million_cached
        self.priced = usd_per_million_prompt > 0 or usd_per_million_completion > 0
        self.prices = Prices(usd_per_million_prompt, cached, usd_per_million_completion)

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        return asyncio.run(self._batch(requests))

    async def _batch(self, requests: Sequence[Request]) -> list[Reply]:
        """Answer a batch over one client, which lives no longer than the batch (nor does the key)."""
        key = os.environ.get("OPENAI_API_KEY") or "none"  # servers of one's own ask for none
        slots = asyncio.Semaphore(self.concurrency)
        http = openai.DefaultAsyncHttpxClient(event_hooks={"response": [self._refuse_too_long]})
        try:
            client = openai.AsyncOpenAI(
                api_key=key, base_url=self.base_url, timeout=self.timeout_s, max_retries=0, http_client=http
            )
        except Exception as error:  # an address that is none
            return [
                Reply.failed(_scrubbed(key, f"{type(error).__name__}: {error}"), model=self.model) for _ in requests
            ]
        async with client:
            return await asyncio.gather(*(self._safely(client, slots, key, request) for request in requests))

    async def _refuse_too_long(self, response: Any) -> None:
        """Refuse a reply by the length it announces: openai itself reads the body of an error to its end."""
        announced = response.headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > self.max_reply_bytes:
            raise EngineError(f"the reply exceeds {self.max_reply_bytes} bytes: dropped unread")

    async def _safely(self, client: openai.AsyncOpenAI, slots: asyncio.Semaphore, key: str, request: Request) -> Reply:
        """Return the reply or, whatever goes wrong, a Reply with the reason; a server's words come in here alone."""
        async with slots:
            start = time.monotonic()
            try:
                reply = self._reply(await self._ask(client, request), time.monotonic() - start)
            except Exception as error:
                told = _scrubbed(key, f"{type(error).__name__}: {error}")  # before it is cut, perhaps within the key
                return Reply.failed(told, model=self.model, seconds=time.monotonic() - start)
            return reply.replace(**{name: _scrubbed(key, said) for name, said in reply if isinstance(said, str)})

    async def _ask(self, client: openai.AsyncOpenAI, request: Request) -> "_Completion":
        refused: list[Form] = []
        for form in self._forms() if request.json_schema is not None else ():
            try:
                completion = await self._retried(client, request, form)
                break
            except openai.APIStatusError as error:
                if error.status_code not in _REFUSED_FORMAT:
                    raise
                refused.append(form)
        else:
            completion = await self._retried(client, _with_schema_in_words(request), None)
        self.tool_calls &= "tool" not in refused  # only now: the first 400 may have had another reason
        self.json_schema &= "format" not in refused
        return completion

    def _forms(self) -> tuple[Form, ...]:
        wanted: tuple[tuple[Form, bool], ...] = (("tool", self.tool_calls), ("format", self.json_schema))
        return tuple(form for form, left in wanted if left)

    async def _retried(self, client: openai.AsyncOpenAI, request: Request, form: Form | None) -> "_Completion":
        attempts = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self.attempts),
            wait=self._wait_s,
            retry=tenacity.retry_if_exception(_is_passing),
            reraise=True,
        )
        return await attempts(self._attempt, client, request, form)

    def _wait_s(self, state: tenacity.RetryCallState) -> float:
        backoff = tenacity.wait_exponential(self.backoff_s) + tenacity.wait_random(0, self.backoff_s)
        error = state.outcome.exception() if state.outcome else None
        wanted_s = error.response.headers.get("retry-after", "") if isinstance(error, openai.APIStatusError) else ""
        try:
            return min(_MAX_WAIT_S, max(backoff(state), float(wanted_s)))
        except ValueError:  # none, or a date: the backoff will do
            return min(_MAX_WAIT_S, backoff(state))

    async def _attempt(self, client: openai.AsyncOpenAI, request: Request, form: Form | None) -> "_Completion":
        """Send one request and read a bounded reply; the time limit holds for all of it, not each read."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [message.model_dump() for message in request.messages],
            **request.model_dump(include={"seed", "temperature", "top_p", "max_tokens"}),
        }
        if form == "tool":
            function = {"name": _FUNCTION, "description": "Give the answer.", "parameters": request.json_schema}
            body["tools"] = [{"type": "function", "function": function}]
            body["tool_choice"] = {"type": "function", "function": {"name": _FUNCTION}}
        elif form == "format":
            schema = {"name": _FUNCTION, "schema": request.json_schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        async with asyncio.timeout(self.timeout_s):
            async with client.chat.completions.with_streaming_response.create(**body) as response:
                received = bytearray()
                async for chunk in response.iter_bytes():
                    received += chunk
                    if len(received) > self.max_reply_bytes:
                        raise EngineError(f"the reply exceeds {self.max_reply_bytes} bytes: dropped unread")
        try:
            return _Completion.model_validate_json(bytes(received))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "body"
            raise EngineError(f"the reply is no chat completion: {where}: {first['msg']}") from error

    def _reply(self, completion: "_Completion", seconds: float) -> Reply:
        choice, usage = completion.choices[0], completion.usage or _Usage()
        cached = min((usage.prompt_tokens_details or _Details()).cached_tokens or 0, usage.prompt_tokens)
        tokens = (usage.prompt_tokens - cached, cached, usage.completion_tokens)
        return Reply(
            text=choice.message.said(),
            finish_reason="stop" if choice.finish_reason in (None, "", "tool_calls") else choice.finish_reason,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=cached,
            completion_tokens=usage.completion_tokens,
            seconds=seconds,
            usd=sum(count * price for count, price in zip(tokens, self.prices, strict=True)) / 1e6,
            model=completion.model or self.model,
        )


class _Part(BaseModel):
    """Part of a chat completion; what we do not use is ignored, what we use has to have its type."""

    model_config = ConfigDict(strict=True)


class _Details(_Part):
    cached_tokens: Tokens | None = 0


class _Usage(_Part):
    prompt_tokens: Tokens = 0
    completion_tokens: Tokens = 0
    prompt_tokens_details: _Details | None = None


class _Function(_Part):
    name: str
    arguments: str


class _ToolCall(_Part):
    function: _Function


class _Message(_Part):
    content: str | None = None
    tool_calls: list[_ToolCall] | None = None

    def said(self) -> str:
        """Return the arguments of the first call of our function; what was said in words where there is none."""
        called = [call.function.arguments for call in self.tool_calls or () if call.function.name == _FUNCTION]
        return called[0] if called else self.content or ""


class _Choice(_Part):
    message: _Message
    finish_reason: str | None = None


class _Completion(_Part):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None
    model: str | None = None


def _is_passing(error: BaseException) -> bool:
    """Return whether the same request may succeed later."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in _RETRIED_STATUS or error.status_code >= 500
    if isinstance(error, openai.APIConnectionError | TimeoutError):
        return True
    return type(error).__module__.startswith(("httpx", "httpcore"))  # dropped while the body was being read


def _with_schema_in_words(request: Request) -> Request:
    """Return the request with its schema as a last line of the last message."""
    if request.json_schema is None:
        return request
    *earlier, last = request.messages
    form = "Answer with one JSON object of this JSON schema and nothing else:\n"
    message = Message(role=last.role, content=f"{last.content}\n\n{form}{json.dumps(request.json_schema)}")
    return request.replace(messages=(*earlier, message))


def _scrubbed(key: str, said: str) -> str:
    """Return what a server said without the key, which it may have echoed."""
    return said.replace(key, "***") if len(key) >= _SECRET_CHARS else said
