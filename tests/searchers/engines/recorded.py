"""An engine with scripted replies, and requests to ask it: what tests of engines share."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from searchers.engines.base import Engine, Message, Reply, Request


class Counting(Engine):
    """Numbers its replies; every `fails`-th request fails. `is_language_model` is off, as no default is."""

    name, model, is_language_model, gpus = "counting", "counting-1", False, 0.25

    def __init__(self, fails: int = 0) -> None:
        self.asked: list[Request] = []
        self.fails = fails

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        replies = []
        for request in requests:
            self.asked.append(request)
            number = len(self.asked)
            if self.fails and number % self.fails == 0:
                replies.append(Reply(finish_reason="error", error=f"failure {number}"))
            else:
                replies.append(Reply(text=f"reply {number}", prompt_tokens=number, seconds=0.5, usd=0.25, model="m"))
        return replies


def request(seed: int = 0, talk: int = 1, text: str = "a net", role: str = "generator", **more: Any) -> Request:
    return Request(role=role, messages=(Message(role="user", content=text),), seed=seed, talk=talk, **more)


def texts(replies: Sequence[Reply]) -> list[str]:
    return [reply.text or reply.error for reply in replies]


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240.0
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)
