"""Every engine keeps the contract; the one of vLLM, which needs Ray, does so in test_vllm.py."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from automcu_ray.problem.task import Task
from automcu_ray.testing.engine_contract import EngineContract, question
from automcu_ray.testing.searcher_contract import drive
from searchers.dialogue.dialogue import TURNS
from searchers.engines.base import Engine, Reply, Request
from searchers.engines.hf_local import HfLocalEngine
from searchers.engines.offline.engine import OfflineEngine
from searchers.engines.recording.logging_engine import LoggingEngine
from searchers.engines.recording.replay_engine import ReplayEngine
from searchers.tune_searchers import LLMMemorySearch
from tests.searchers.engines.endpoint import endpoint, status
from tests.tiny_model import CONTEXT, make_tiny_model

pytestmark = pytest.mark.thorough

SEVENTH = 7


class Listening(OfflineEngine):
    """The rules; keeps what they are asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        self.asked += requests
        return super().complete(requests)


class TestOffline(EngineContract):
    @pytest.fixture(autouse=True)
    def prompts(self, task: Task) -> None:
        """Rules read this project's prompts alone."""
        engine = Listening()
        drive(LLMMemorySearch(task, engine=engine), 3)
        self.asked = engine.asked[:4]

    def make(self) -> Engine:
        return OfflineEngine()

    def answered(self) -> list[Request]:
        return self.asked

    def failing(self) -> Request:
        return question("prose")


class TestLogging(TestOffline):
    """An engine whose calls are written down answers as it does."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "calls.jsonl"

    def make(self) -> Engine:
        return LoggingEngine(OfflineEngine(), self.path)


class TestReplay(TestOffline):
    @pytest.fixture(autouse=True)
    def recording(self, prompts: None, tmp_path: Path) -> None:
        self.path = tmp_path / "llm" / "calls.jsonl"
        LoggingEngine(OfflineEngine(), self.path).complete(self.asked)

    def make(self) -> Engine:
        return ReplayEngine(path=self.path)


class TestOpenAI(TestOffline):
    """Against an endpoint that answers by the rules, and refuses the seventh conversation."""

    @pytest.fixture(autouse=True)
    def served(self, prompts: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-tests")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        with endpoint({SEVENTH: [status(400)] * 9}) as self.endpoint:
            yield

    def make(self) -> Engine:
        return self.endpoint.engine()

    def failing(self) -> Request:
        return question("a net", seed=SEVENTH * TURNS)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="needs the extra hf")
    pytest.importorskip("xgrammar", reason="needs the extra hf")
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


class TestHfLocal(EngineContract):
    @pytest.fixture(autouse=True)
    def model(self, tiny: Path) -> Iterator[None]:
        self.made: list[Engine] = []
        self.tiny = tiny
        yield
        for engine in self.made:
            engine.close()

    def make(self) -> Engine:
        self.made.append(HfLocalEngine(model=str(self.tiny), device="cpu"))
        return self.made[-1]

    def failing(self) -> Request:
        return question("x y " * CONTEXT)
