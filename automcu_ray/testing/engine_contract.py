"""What every engine keeps to, whatever answers. Inherit, and say how to make one and what it can be asked."""

import pickle
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from searchers.engines.base import Engine, Message, Reply, Request


def question(text: str, seed: int = 0, role: str = "generator") -> Request:
    """Return a request of one short message."""
    return Request(role=role, messages=(Message(role="user", content=text),), seed=seed, max_tokens=16)


def said(replies: Sequence[Reply]) -> list[tuple[str, str]]:
    """Return what was answered, without times and costs."""
    return [(reply.text, reply.finish_reason) for reply in replies]


class EngineContract:
    """`make` returns a new engine, that answers equal requests as the one before it did."""

    @abstractmethod
    def make(self) -> Engine: ...

    @abstractmethod
    def failing(self) -> Request:
        """Return a request that this engine cannot answer."""

    def answered(self) -> list[Request]:
        """Return three requests or more that it answers, not all alike."""
        return [question(text, seed) for seed, text in enumerate(("a net", "another net", "a third net"))]

    def test_it_says_who_answers_and_what_it_reserves(self) -> None:
        engine = self.make()
        assert engine.name != Engine.name and engine.model
        assert 0 <= engine.gpus <= 1

    def test_one_reply_a_request_in_their_order(self) -> None:
        asked = self.answered()
        together = said(self.make().complete(asked))
        assert together == [said(self.make().complete([request]))[0] for request in asked]
        assert len({text for text, _ in together}) > 1 and all(reason != "error" for _, reason in together)
        assert said(self.make().complete(asked[::-1])) == together[::-1]

    def test_no_request_gets_no_reply(self) -> None:
        assert self.make().complete([]) == []

    def test_what_was_used_is_told_and_never_negative(self) -> None:
        engine = self.make()
        for reply in engine.complete(self.answered()):
            assert min(reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens, reply.seconds) >= 0
            assert reply.cached_tokens <= reply.prompt_tokens
            assert reply.usd >= 0 and (engine.priced or engine.recorded or reply.usd == 0)
            assert reply.model and not reply.error

    def test_a_request_that_fails_is_a_reply_and_costs_none_of_the_others(self) -> None:
        first, *rest = self.answered()
        before, failed, *after = self.make().complete([first, self.failing(), *rest])
        assert (failed.finish_reason, failed.text) == ("error", "")
        assert failed.error and "\n" not in failed.error
        assert said([before, *after]) == said(self.make().complete([first, *rest]))

    def test_several_threads_may_ask_at_once(self) -> None:
        engine, asked = self.make(), self.answered()
        with ThreadPoolExecutor(len(asked)) as threads:
            replies = threads.map(lambda request: engine.complete([request])[0], asked)
        assert said(list(replies)) == said(self.make().complete(asked))

    def test_a_pickled_copy_answers_as_it_does(self) -> None:
        asked = self.answered()
        copy = pickle.loads(pickle.dumps(self.make()))
        assert said(copy.complete(asked)) == said(self.make().complete(asked))

    def test_it_may_be_closed_twice_and_before_it_was_asked(self) -> None:
        engine = self.make()
        engine.close()
        engine.close()
