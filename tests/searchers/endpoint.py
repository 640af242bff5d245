"""An OpenAI-compatible server on loopback: the offline rules behind HTTP, which misbehave when told to."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from automcu_ray.ledger import Cost
from searchers.engines.base import Message, Request
from searchers.engines.offline import OfflineEngine, read_sections
from searchers.engines.openai import OpenAIEngine
from searchers.talk import TURNS

PROMPT_PRICE, CACHED_PRICE, COMPLETION_PRICE = 2.0, 0.5, 8.0  # US dollars per million tokens
Act = Callable[["Handler"], None]


class JsonHandler(BaseHTTPRequestHandler):
    """Answers in JSON, and keeps quiet about it."""

    def send(self, status: int, body: Any, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Handler(JsonHandler):
    """Answers one request as the rules would, or as the next act of its conversation says."""

    def do_POST(self) -> None:
        self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server: Any = self.server
        talk = self.body["seed"] // TURNS  # of a run whose seed is 0
        with server.lock:
            server.bodies.append(self.body)
            acts = server.acts.get(talk, [])
            act = acts.pop(0) if acts else honest
        act(self)

    def rules(self) -> str:
        """What the offline rules say to the first question of the conversation."""
        messages = tuple(Message(**message) for message in self.body["messages"][:2])
        sections = read_sections(messages[-1].content)
        role = (
            "proposer" if "Candidates wanted" in sections else "generator" if "Suggestion" in sections else "improver"
        )
        request = Request(role=role, messages=messages, seed=self.body["seed"])
        return OfflineEngine().complete([request])[0].text

    def complete(self, text: Any, finish_reason: str = "stop", model: str = "rules") -> None:
        """Send a completion, and count what it uses: the system message comes from the cache."""
        prompt = sum(len(message["content"]) for message in self.body["messages"]) // 3
        cached, written = len(self.body["messages"][0]["content"]) // 3, len(text) // 3
        server: Any = self.server
        with server.lock:
            server.used += Cost(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=written)
        usage = {"prompt_tokens": prompt, "completion_tokens": written}
        details = {"prompt_tokens_details": {"cached_tokens": cached}}
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
        self.send(200, {"id": "1", "model": model, "choices": [choice], "usage": {**usage, **details}})


def honest(handler: Handler) -> None:
    handler.complete(handler.rules())


def says(text: str, **more: Any) -> Act:
    return lambda handler: handler.complete(text, **more)


def around(before: str, after: str) -> Act:
    return lambda handler: handler.complete(before + handler.rules() + after)


def status(code: int, message: str = "no", **headers: str) -> Act:
    return lambda handler: handler.send(code, {"error": {"message": message}}, **headers)


def cut(handler: Handler) -> None:
    handler.complete(handler.rules()[:20], finish_reason="length")


def drop(handler: Handler) -> None:
    handler.close_connection = True
    handler.connection.close()


def slow(handler: Handler) -> None:
    time.sleep(30)  # longer than any caller of the tests waits


class Endpoint:
    """A server that plays the acts of each conversation in turn, and is honest after that."""

    def __init__(self, acts: Mapping[int, Sequence[Act]]) -> None:
        self.server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # dropped connections are the point
        self.server.lock, self.server.bodies, self.server.used = threading.Lock(), [], Cost()
        self.server.acts = {talk: list(several) for talk, several in acts.items()}
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    @property
    def requests(self) -> int:
        return len(self.server.bodies)

    @property
    def used(self) -> Cost:
        """Tokens by the endpoint's own count, and what they cost at the prices above."""
        used: Cost = self.server.used
        full = used.prompt_tokens - used.cached_tokens
        usd = full * PROMPT_PRICE + used.cached_tokens * CACHED_PRICE + used.completion_tokens * COMPLETION_PRICE
        return used.model_copy(update={"usd": usd / 1e6})

    def engine(self, **options: Any) -> OpenAIEngine:
        """An engine that asks here, and is quick to try again."""
        prices = {
            "usd_per_million_prompt": PROMPT_PRICE,
            "usd_per_million_cached": CACHED_PRICE,
            "usd_per_million_completion": COMPLETION_PRICE,
        }
        quick: dict[str, Any] = {"timeout_s": 5.0, "backoff_s": 0.005, "attempts": 2, **prices, **options}
        return OpenAIEngine(base_url=self.url, model="rules", **quick)


@contextmanager
def endpoint(acts: Mapping[int, Sequence[Act]] | None = None) -> Iterator[Endpoint]:
    """Serve until the block ends."""
    served = Endpoint(acts or {})
    try:
        yield served
    finally:
        served.server.shutdown()
        served.server.server_close()
