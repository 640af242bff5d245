import pickle
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.testing.searcher_contract import drive, story
from searchers.engines import pick_engine
from searchers.engines.base import Begun, Engine
from searchers.engines.recording.logging_engine import LoggingEngine
from searchers.engines.recording.replay_engine import ReplayEngine
from searchers.tune_searchers import LLMMemorySearch
from tests.searchers.conftest import make_task
from tests.searchers.engines.recorded import Counting, request, texts


def record(folder: Path, *seeds: int, engine: Engine | None = None) -> Path:
    """Return the folder of a run whose engine was asked for these seeds."""
    logged = LoggingEngine(engine or Counting(), folder / "llm" / "calls.jsonl")
    for seed in seeds:
        logged.complete([request(seed=seed)])
    return folder


@pytest.mark.parametrize("inside", [".", "llm", "llm/calls.jsonl"])
def test_a_run_its_llm_folder_or_the_file_will_do(tmp_path: Path, inside: str) -> None:
    engine = pick_engine("cassette", {"path": str(record(tmp_path, 0, 1) / inside)})
    assert texts(engine.complete([request(seed=1), request(seed=0)])) == ["reply 2", "reply 1"]


def test_it_passes_for_what_was_recorded_and_costs_the_same(tmp_path: Path) -> None:
    engine = ReplayEngine(path=record(tmp_path, 0))
    assert (engine.name, engine.model) == ("counting", "counting-1")
    assert engine.instant and not engine.is_language_model
    reply = engine.complete([request()])[0]
    assert (reply.usd, reply.seconds, reply.prompt_tokens, reply.model) == (0.25, 0.5, 1, "m")
    assert engine.gpus == 0.0  # the recorded engine's GPU is not needed


def test_equal_requests_get_their_replies_in_order_failures_too(tmp_path: Path) -> None:
    engine = ReplayEngine(path=record(tmp_path, 0, 0, 0, engine=Counting(fails=2)))
    replies = engine.complete([request(), request()]) + engine.complete([request()])
    assert texts(replies) == ["reply 1", "failure 2", "reply 3"]


@pytest.mark.parametrize("asked", [request(seed=5, talk=7), request(seed=0, talk=2)])
def test_what_was_not_recorded_is_an_error_that_says_so(tmp_path: Path, asked: Any) -> None:
    reply = ReplayEngine(path=record(tmp_path, 0)).complete([asked])[0]
    assert (reply.finish_reason, reply.text) == ("error", "")
    assert f"generator request (conversation {asked.talk}, seed {asked.seed})" in reply.error
    assert "configuration or the code differs" in reply.error


def test_a_recorded_reply_answers_once(tmp_path: Path) -> None:
    engine = ReplayEngine(path=record(tmp_path, 0))
    first, second = engine.complete([request(), request()])
    assert (first.finish_reason, second.finish_reason) == ("stop", "error")


def test_it_knows_when_each_conversation_began(tmp_path: Path) -> None:
    logged = LoggingEngine(Counting(), tmp_path / "calls.jsonl")
    logged.begin(1, Begun())
    logged.begin(2, Begun(known=(1, 4), size=3))
    logged.complete([request(talk=1), request(talk=2)])
    engine = ReplayEngine(path=tmp_path)
    assert engine.recorded == {1: Begun(), 2: Begun(known=(1, 4), size=3)}
    assert LoggingEngine(engine, tmp_path / "new" / "calls.jsonl").recorded == engine.recorded


def test_which_replies_were_given_travels_with_it(tmp_path: Path) -> None:
    engine = ReplayEngine(path=record(tmp_path, 0, 0))
    engine.complete([request()])
    assert texts(pickle.loads(pickle.dumps(engine)).complete([request()])) == ["reply 2"]


def test_a_cut_last_line_is_dropped_and_the_recording_stays_as_it_is(tmp_path: Path) -> None:
    calls = record(tmp_path, 0, 1) / "llm" / "calls.jsonl"
    calls.write_bytes(calls.read_bytes()[:-9])
    size = calls.stat().st_size
    replies = ReplayEngine(path=tmp_path).complete([request(seed=0), request(seed=1)])
    assert [reply.finish_reason for reply in replies] == ["stop", "error"]
    assert calls.stat().st_size == size


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "engine.path wants a run's folder"),
        ("", "it is empty"),
        ('{"key": "ab', "it is empty"),
        ("{}\n", "line 1 is not a recorded call: key: Field required"),
        ("\n", "line 1 is not a recorded call: line: Invalid JSON"),
    ],
)
def test_a_missing_empty_or_damaged_file_is_a_config_error(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "calls.jsonl").write_text(content)
    with pytest.raises(ConfigError, match=message):
        ReplayEngine(path=tmp_path)


def test_without_a_path_it_says_what_it_needs() -> None:
    with pytest.raises(ConfigError, match=r"needs engine\.path"):
        pick_engine("cassette", {})


def test_a_search_is_told_again_from_its_recording(tmp_path: Path) -> None:
    calls = tmp_path / "llm" / "calls.jsonl"
    recorded = LLMMemorySearch(make_task(), seed=3, engine=LoggingEngine(pick_engine("offline", {}), calls))
    drive(recorded, 6)
    again = LLMMemorySearch(make_task(), seed=3, engine=ReplayEngine(path=tmp_path))
    drive(again, 6)
    assert story(again) == story(recorded)
    assert len(calls.read_text().splitlines()) > 6
