"""A stand-in for vLLM, so that its actor can be killed: it answers every request with networks drawn at random."""

import json
import time
from random import Random
from types import SimpleNamespace
from typing import Any

STEP_S = 0.2


class EngineArgs:
    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments


class SamplingParams:
    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments


class LLMEngine:
    def __init__(self) -> None:
        self.model_config = SimpleNamespace(max_model_len=10**6)
        self.open: dict[str, tuple[list[int], SamplingParams]] = {}

    @classmethod
    def from_engine_args(cls, arguments: EngineArgs) -> "LLMEngine":
        return cls()

    def get_tokenizer(self) -> Any:
        def encode(messages: list[dict[str, str]], **_: Any) -> dict[str, list[int]]:
            return {"input_ids": list("".join(message["content"] for message in messages).encode())}

        return SimpleNamespace(apply_chat_template=encode)

    def add_request(self, name: str, prompt: dict[str, list[int]], sampling: SamplingParams) -> None:
        self.open[name] = (prompt["prompt_token_ids"], sampling)

    def step(self) -> list[Any]:
        time.sleep(STEP_S)
        answered = [self._answer(name, *request) for name, request in self.open.items()]
        self.open.clear()
        return answered

    def _answer(self, name: str, prompt: list[int], sampling: SamplingParams) -> Any:
        rng = Random(f"{sampling.arguments['seed']} {prompt}")
        specs = [{"backbone": [_layer(rng) for _ in range(rng.randint(1, 3))]} for _ in range(4)]
        text = json.dumps({"candidates": specs})
        output = SimpleNamespace(text=text, finish_reason="stop", token_ids=[0] * len(text))
        about = {"finished": True, "prompt_token_ids": prompt, "num_cached_tokens": 0}
        return SimpleNamespace(request_id=name, outputs=[output], **about)


def _layer(rng: Random) -> dict[str, Any]:
    return {"type": rng.choice(["conv", "residual"]), "out_channels": rng.randint(2, 24), "stride": 2}
