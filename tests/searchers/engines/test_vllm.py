"""The vLLM engine: its actor with a stand-in for vLLM everywhere, and with vLLM itself where that is installed."""

import importlib.util
import json
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.core.errors import ConfigError, ToolMissingError
from automcu_ray.runtime.cluster import ray
from automcu_ray.testing.engine_contract import EngineContract, question
from searchers.engines import local_model, pick_engine
from searchers.engines import vllm as module
from searchers.engines.base import Engine, Reply, Request
from searchers.engines.vllm import VllmEngine
from tests.searchers.engines.recorded import request, wait_until
from tests.tiny_model import CONTEXT, make_tiny_model

HAS_VLLM = importlib.util.find_spec("vllm") is not None


# Options ----------------------------------------------------------------------------------------------------


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[..., VllmEngine]:
    """Return what makes an engine as if vLLM were installed and the machine had a GPU or none."""
    monkeypatch.setattr(local_model.importlib.util, "find_spec", lambda name: object())

    def make(*, gpu: bool, **options: Any) -> VllmEngine:
        monkeypatch.setattr(module, "_has_gpu", lambda: gpu)
        engine = pick_engine("vllm", {"model": "org/name", **options})
        assert isinstance(engine, VllmEngine)
        return engine

    return make


@pytest.mark.parametrize(
    ("gpu", "options", "gpus", "utilization"),
    [
        (False, {}, 0.0, None),
        (True, {}, 1.0, 0.9),
        (True, {"gpus": 0.4}, 0.4, 0.36),
        (True, {"gpus": 0.4, "gpu_memory_utilization": 0.3}, 0.4, 0.3),
        (True, {"gpus": 0}, 0.0, None),
    ],
)
def test_the_memory_it_takes_follows_from_the_share_it_reserves(
    make: Callable[..., VllmEngine], gpu: bool, options: dict[str, Any], gpus: float, utilization: float | None
) -> None:
    engine = make(gpu=gpu, **options)
    assert engine.gpus == gpus
    assert engine.arguments.get("gpu_memory_utilization") == (utilization and pytest.approx(utilization))
    assert engine.arguments["enforce_eager"] == (gpus == 0)
    assert engine.arguments["dtype"] == ("auto" if gpus else "float32")


@pytest.mark.parametrize("gpus", [-0.1, 2])
def test_it_takes_no_more_than_one_gpu(make: Callable[..., VllmEngine], gpus: float) -> None:
    with pytest.raises(ConfigError, match=f"from 0 to 1, found {gpus}"):
        make(gpu=True, gpus=gpus)


def test_copies_share_an_actor_and_other_engines_do_not(make: Callable[..., VllmEngine]) -> None:
    engine = make(gpu=False)
    assert pickle.loads(pickle.dumps(engine)).actor_name == engine.actor_name != make(gpu=False).actor_name


def test_without_ray_it_starts_no_cluster(make: Callable[..., VllmEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.ray, "is_initialized", lambda: False)
    (reply,) = make(gpu=False).complete([request()])
    assert (reply.finish_reason, reply.error, reply.model) == ("error", "Ray is not running", "org/name")


def test_a_missing_package_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolMissingError, match=r"not installed: vllm\..*pip install 'automcu-ray\[vllm\]'"):
        pick_engine("vllm", {"model": "org/name"})


# The engine over a real actor, whose server dies or dawdles as it is asked to -------------------------------


@pytest.fixture
def over_ray(
    ray_cluster: None, make: Callable[..., VllmEngine], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., VllmEngine]]:
    class Unreliable:  # local, so that it travels by value
        def __init__(self, arguments: dict[str, Any]) -> None:
            self.model = arguments["model"]

        def ask(self, request: Request) -> Reply:
            mark = Path(request.messages[0].content)
            if request.role == "dies" or (request.role == "dies once" and not mark.exists()):
                mark.touch()
                os._exit(1)
            if request.role == "dawdles":
                time.sleep(60)
            return Reply(text=str(os.getpid()), model=self.model)

    monkeypatch.setattr(module, "Server", Unreliable)
    made = []

    def start(**options: Any) -> VllmEngine:
        made.append(make(gpu=False, **options))
        return made[-1]

    yield start
    for engine in made:
        engine.close()


def test_what_was_open_when_the_actor_died_is_asked_again_with_a_bound(
    over_ray: Callable[..., VllmEngine], tmp_path: Path
) -> None:
    engine = over_ray()
    (once,) = engine.complete([request(role="dies once", text=str(tmp_path / "a"))])
    assert once.text
    (always,) = engine.complete([request(role="dies", text=str(tmp_path / "b"))])
    assert (always.finish_reason, always.text) == ("error", "")
    assert "Actor" in always.error
    assert "\n" not in always.error


def test_copies_ask_the_same_actor_until_it_is_closed(over_ray: Callable[..., VllmEngine], tmp_path: Path) -> None:
    engine = over_ray()
    copy = pickle.loads(pickle.dumps(engine))
    replies = engine.complete([request(text=str(tmp_path))] * 2) + copy.complete([request(text=str(tmp_path))])
    assert len({reply.text for reply in replies}) == 1
    engine.close()
    wait_until(lambda: not alive(int(replies[0].text)))


def test_an_answer_that_takes_too_long_is_an_error(over_ray: Callable[..., VllmEngine], tmp_path: Path) -> None:
    engine = over_ray(timeout_s=1.0)
    (reply,) = engine.complete([request(role="dawdles", text=str(tmp_path))])
    assert (reply.finish_reason, reply.error) == ("error", "no reply within 1 s (engine.timeout_s)")


class TestContract(EngineContract):
    """With a stand-in for vLLM behind the real actor, which cannot answer an empty question."""

    @pytest.fixture(autouse=True)
    def stand_in(
        self, ray_cluster: None, make: Callable[..., VllmEngine], monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[None]:
        class Echo:  # local, so that it travels by value
            def __init__(self, arguments: dict[str, Any]) -> None:
                self.model = arguments["model"]

            def ask(self, request: Request) -> Reply:
                text = request.messages[0].content
                return Reply(text=text, model=self.model) if text else Reply.failed("no words", model=self.model)

        monkeypatch.setattr(module, "Server", Echo)
        self.new = make
        self.made: list[Engine] = []
        yield
        for engine in self.made:
            engine.close()

    def make(self) -> Engine:
        self.made.append(self.new(gpu=False))
        return self.made[-1]

    def failing(self) -> Request:
        return question("")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# vLLM itself ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not HAS_VLLM, reason="vllm is not installed; scripts/check_vllm.sh installs and tests it")
def test_vllm_obeys_the_schema_survives_a_kill_and_lets_go(ray_cluster: None, tmp_path: Path) -> None:
    from searchers.dialogue.reply_schemas import spec_schema
    from tests.searchers.conftest import make_task

    engine = VllmEngine(model=str(make_tiny_model(tmp_path / "tiny")))
    asked = [request(seed, json_schema=spec_schema(make_task().space), temperature=1.0) for seed in range(16)]
    replies = engine.complete(asked)
    assert {reply.finish_reason for reply in replies} == {"stop"}
    assert all(set(json.loads(reply.text)) == {"backbone", "head"} for reply in replies)
    assert f"context holds {CONTEXT}" in engine.complete([request(text="x y " * 9000)])[0].error
    pid = ray.get(module._ACTORS[engine.actor_name].__ray_call__.remote(lambda self: os.getpid()))
    threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    assert {reply.finish_reason for reply in engine.complete(asked)} == {"stop"}
    assert not alive(pid)
    pid = ray.get(module._ACTORS[engine.actor_name].__ray_call__.remote(lambda self: os.getpid()))
    engine.close()
    wait_until(lambda: not alive(pid))
