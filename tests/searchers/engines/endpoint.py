"""An OpenAI-compatible server on loopback: networks drawn at random behind HTTP, which misbehaves when told to."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any

from automcu_ray.core.cost import Cost
from automcu_ray.networks.notation import write
from automcu_ray.networks.search_space import Space
from searchers.dialogue.dialogue import TURNS
from searchers.engines.base import Message
from searchers.engines.openai import OpenAIEngine
from tests.searchers.sections import read_sections

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
    """Answers one request soundly, or as the next act of its conversation says."""

    def do_POST(self) -> None:
        self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server: Any = self.server
        conversation = self.body["seed"] // TURNS  # of a run whose seed is 0
        with server.lock:
            server.bodies.append(self.body)
            acts = server.acts.get(conversation, [])
            act = acts.pop(0) if acts else honest
        act(self)

    def rules(self) -> str:
        """A sound answer to the first question of the conversation, drawn by its seed."""
        prompt = "\n".join(message["content"] for message in self.body["messages"][:2])
        if "## Notation" in prompt:
            return self.compact_rules(prompt)
        sections = read_sections(Message(**message) for message in self.body["messages"][:2])
        if "Candidates wanted" not in sections and "Suggestion" not in sections:
            return json.dumps({"problem": "Too small.", "suggestion": "Make it larger."})
        space = Space(**{name: sections["Task"][name] for name in ("input_shape", "num_classes")})
        rng = Random(self.body["seed"])
        drawn = (space.sample(rng).trial_config()["spec"] for _ in range(sections.get("Candidates wanted", 1)))
        return json.dumps({"candidates": list(drawn)} if "Candidates wanted" in sections else next(drawn))

    def compact_rules(self, prompt: str) -> str:
        wanted = re.search(r"Propose (\d+) network", prompt)
        if wanted is None:
            return json.dumps({"problem": "Too small.", "suggestion": "Make it larger."})
        sizes = re.search(r"input (\d+)x(\d+)x(\d+), (\d+) classes", prompt)
        assert sizes is not None, "every task says what goes in"
        channels, height, width, classes = map(int, sizes.groups())
        space, rng = Space(input_shape=(channels, height, width), num_classes=classes), Random(self.body["seed"])
        specs = (spec for spec in iter(lambda: space.sample(rng).spec, None) if spec is not None)
        lines = [write(next(specs)) for _ in range(int(wanted[1]))]
        return json.dumps({"plan": "Other widths.", "networks": lines})

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


class Loopback:
    """A server on this machine; `bodies` are the requests that it got."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self.server: Any = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # dropped connections are the point
        self.server.lock, self.server.bodies = threading.Lock(), []
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server.bodies
        return found

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Endpoint(Loopback):
    """A server that plays the acts of each conversation in turn, and is honest after that."""

    def __init__(self, acts: Mapping[int, Sequence[Act]]) -> None:
        super().__init__(Handler)
        self.server.used = Cost()
        self.server.acts = {conversation: list(several) for conversation, several in acts.items()}

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
        served.close()
