"""What runs in the vLLM engine's actor, in this process and over a stand-in for vLLM."""

import os
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from searchers.engines import vllm as module
from searchers.engines.base import Reply, Request
from searchers.engines.vllm import Server
from tests.searchers.engines.recorded import request, wait_until


class FakeEngine:
    """Writes one token a step for everything that is open, and stops where the test says so."""

    def __init__(self) -> None:
        self.model_config = SimpleNamespace(max_model_len=100)
        self.requests: dict[str, Any] = {}
        self.batches: list[int] = []
        self.may_step = threading.Semaphore(0)
        self.breaks = False

    def get_tokenizer(self) -> Any:
        def encode(messages: list[dict[str, str]], **_: Any) -> dict[str, list[int]]:
            return {"input_ids": [7] * len(messages[-1]["content"])}

        return SimpleNamespace(apply_chat_template=encode)

    def add_request(self, name: str, prompt: dict[str, Any], sampling: Any) -> None:
        if sampling.structured_outputs == "bad":
            raise ValueError("no such\ngrammar")
        self.requests[name] = SimpleNamespace(prompt=prompt["prompt_token_ids"], sampling=sampling, written=0)

    def step(self) -> list[Any]:
        self.may_step.acquire()
        if self.breaks:
            raise RuntimeError("CUDA out of memory")
        self.batches.append(len(self.requests))
        return [self.after(name, one) for name, one in list(self.requests.items())]

    def after(self, name: str, one: Any) -> Any:
        one.written += 1
        finished = one.written == one.sampling.max_tokens
        if finished:
            del self.requests[name]
        text = SimpleNamespace(text="x" * one.written, finish_reason="length", token_ids=[1] * one.written)
        return SimpleNamespace(
            request_id=name, finished=finished, outputs=[text], prompt_token_ids=one.prompt, num_cached_tokens=3
        )


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine()
    package, parameters = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    package.EngineArgs = lambda **arguments: arguments
    package.LLMEngine = SimpleNamespace(from_engine_args=lambda arguments: engine)
    package.SamplingParams = SimpleNamespace
    parameters.RequestOutputKind = SimpleNamespace(FINAL_ONLY="final")
    parameters.StructuredOutputsParams = lambda json: json.get("type")
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", parameters)
    return engine


class Asking(threading.Thread):
    """A caller that waits for its reply."""

    def __init__(self, server: Server, one: Request) -> None:
        super().__init__(daemon=True)
        self.server, self.one, self.reply = server, one, Reply()
        self.start()

    def run(self) -> None:
        self.reply = self.server.ask(self.one)

    def result(self) -> Reply:
        self.join(5.0)
        assert not self.is_alive(), "no reply came"
        return self.reply


def test_a_request_joins_the_batch_that_is_being_written(fake: FakeEngine) -> None:
    server = Server({"model": "m"})
    first = Asking(server, request(max_tokens=4))
    fake.may_step.release()
    wait_until(lambda: fake.batches == [1])
    second = Asking(server, request(max_tokens=2))
    wait_until(lambda: not server._asked.empty() or len(fake.requests) == 2)
    fake.may_step.release(5)
    assert (first.result().text, second.result().text) == ("xxxx", "xx")
    assert 2 in fake.batches
    reply = second.result()
    assert (reply.finish_reason, reply.prompt_tokens, reply.cached_tokens) == ("length", 5, 3)
    assert (reply.completion_tokens, reply.model) == (2, "m")


def test_sampling_is_the_requests_and_bounded_by_the_context(fake: FakeEngine) -> None:
    server = Server({"model": "m"})
    Asking(server, request(seed=9, temperature=0.5, top_p=0.8, max_tokens=5000, json_schema={"type": "object"}))
    wait_until(lambda: len(fake.requests) == 1)
    (one,) = fake.requests.values()
    got = one.sampling
    assert (got.seed, got.temperature, got.top_p, got.structured_outputs) == (9, 0.5, 0.8, "object")
    assert got.max_tokens == 100 - len("a net")


def test_what_cannot_be_asked_fails_alone(fake: FakeEngine) -> None:
    server = Server({"model": "m"})
    assert (
        Asking(server, request(text="x" * 100)).result().error
        == "the prompt has 100 tokens, the model's context holds 100"
    )
    assert Asking(server, request(json_schema={"type": "bad"})).result().error == "ValueError: no such grammar"
    fake.may_step.release()
    assert Asking(server, request(max_tokens=1)).result().text == "x"


@pytest.fixture
def no_memory(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(arguments: Any) -> None:
        raise ValueError("Free memory on device is less than desired")

    monkeypatch.setattr(sys.modules["vllm"].LLMEngine, "from_engine_args", refuse)  # type: ignore[attr-defined]
    monkeypatch.setattr(module.ray, "is_initialized", lambda: False)  # this process is no actor, whatever ran before


def test_a_model_that_cannot_be_loaded_is_told_to_everyone_who_asks(no_memory: None) -> None:
    server = Server({"model": "m"})
    replies = [Asking(server, request(seed)).result() for seed in range(2)]
    assert [reply.error for reply in replies] == ["ValueError: Free memory on device is less than desired"] * 2


def test_the_first_process_that_cannot_load_its_model_makes_room_for_another(
    no_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    exits: list[int] = []
    monkeypatch.setattr(module, "_may_start_again", lambda: True)
    monkeypatch.setattr(module, "os", SimpleNamespace(_exit=exits.append, path=os.path))
    reply = Asking(Server({"model": "m"}), request()).result()
    assert exits == [1] and reply.error, "where the process does not end, the reply says why"


def test_a_step_that_breaks_is_told_and_ends_the_process(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    exits: list[int] = []

    def leave(status: int) -> None:
        exits.append(status)
        threading.Event().wait()  # this thread goes no further

    monkeypatch.setattr(module, "os", SimpleNamespace(_exit=leave, path=os.path))
    monkeypatch.setattr(module, "_LEAVE_S", 0.0)
    server = Server({"model": "m"})
    caller = Asking(server, request())
    wait_until(lambda: len(server._open) == 1)
    fake.breaks = True
    fake.may_step.release()
    assert caller.result().error == "RuntimeError: CUDA out of memory"
    wait_until(lambda: exits == [1])
