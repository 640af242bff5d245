import json
import pickle
import threading
from pathlib import Path

import pytest

from automcu_ray.core.errors import ConfigError
from searchers.engines.base import Begun
from searchers.engines.recording import logging_engine, recorded_calls
from searchers.engines.recording.logging_engine import LoggingEngine
from tests.searchers.engines.recorded import Counting, request, texts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "llm" / "calls.jsonl"


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_says_who_answered_what(path: Path) -> None:
    engine = LoggingEngine(Counting(), path)
    engine.complete([request(seed=3, talk=2)])
    (line,) = lines(path)
    assert (line["engine"], line["model"], line["is_language_model"]) == ("counting", "counting-1", False)
    assert line["key"] == request(seed=3, talk=2).key
    assert recorded_calls.Call.model_validate(line).reply.text == "reply 1"


def test_the_logged_engine_is_what_it_logs() -> None:
    engine = LoggingEngine(Counting(), Path("never written"))
    assert (engine.name, engine.model, engine.is_language_model) == ("counting", "counting-1", False)
    assert (engine.instant, engine.gpus, dict(engine.recorded)) == (False, 0.25, {})


@pytest.mark.parametrize("other", [request(seed=1), request(talk=2)])
def test_requests_of_another_conversation_or_moment_are_not_equal(other: object) -> None:
    assert request() == request()
    assert request().key == request().key
    assert request().key != getattr(other, "key", None)


def test_what_was_paid_for_before_a_kill_is_not_asked_again(path: Path) -> None:
    LoggingEngine(Counting(), path).complete([request(seed=0), request(seed=1)])
    second_life = Counting()
    engine = LoggingEngine(second_life, path)
    replies = engine.complete([request(seed=1), request(seed=2), request(seed=0)])
    assert texts(replies) == ["reply 2", "reply 1", "reply 1"]  # the middle one is the second engine's first
    assert [one.seed for one in second_life.asked] == [2]
    assert replies[0].usd == 0.25  # a record costs what it cost
    assert len(lines(path)) == 3


def test_each_recorded_line_answers_once_and_in_order(path: Path) -> None:
    LoggingEngine(Counting(), path).complete([request(), request()])
    second_life = Counting()
    engine = LoggingEngine(second_life, path)
    assert texts([engine.complete([request()])[0] for _ in range(3)]) == ["reply 1", "reply 2", "reply 1"]
    assert len(second_life.asked) == 1


def test_failures_are_asked_again(path: Path) -> None:
    LoggingEngine(Counting(fails=1), path).complete([request()])
    assert texts(LoggingEngine(Counting(), path).complete([request()])) == ["reply 1"]
    assert len(lines(path)) == 2


def test_a_cut_last_line_is_dropped_and_the_file_goes_on(path: Path) -> None:
    LoggingEngine(Counting(), path).complete([request(seed=0), request(seed=1)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    second_life = Counting()
    LoggingEngine(second_life, path).complete([request(seed=0), request(seed=1)])
    assert [one.seed for one in second_life.asked] == [1]
    assert [line["key"] for line in lines(path)] == [request(seed=0).key, request(seed=1).key]


def test_a_damaged_line_is_told_with_its_number(path: Path) -> None:
    LoggingEngine(Counting(), path).complete([request(seed=0)])
    path.write_text(path.read_text() + '{"key": 1}\n')
    with pytest.raises(ConfigError, match=r"calls\.jsonl line 2 is not a recorded call: key: "):
        LoggingEngine(Counting(), path)


def test_it_knows_when_the_recorded_conversations_began(path: Path) -> None:
    first = LoggingEngine(Counting(), path)
    first.begin(1, Begun())
    first.begin(2, Begun(known=(1, 3), size=4))  # and killed before it asked
    second = LoggingEngine(Counting(), path)
    assert second.recorded == {1: Begun(), 2: Begun(known=(1, 3), size=4)}
    second.begin(2, second.recorded[2])
    assert len((path.parent / "talks.jsonl").read_text().splitlines()) == 2


def test_after_the_end_of_a_search_nothing_more_is_asked(path: Path) -> None:
    inner = Counting()
    engine = LoggingEngine(inner, path)
    engine.close()
    assert engine.complete([request()])[0].error == "the search is over"
    assert inner.asked == []


def test_state_travels_and_the_file_is_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LoggingEngine(Counting(), path).complete([request(seed=seed) for seed in range(4)])
    reads = []
    monkeypatch.setattr(
        logging_engine, "read_calls", lambda path: reads.append(path) or recorded_calls.read_calls(path)
    )
    engine = LoggingEngine(Counting(), path)
    assert texts(engine.complete([request(seed=0)])) == ["reply 1"]
    engine = pickle.loads(pickle.dumps(engine))
    got = [engine.complete([request(seed=seed)])[0] for seed in range(4)]
    assert texts(got) == ["reply 1", "reply 2", "reply 3", "reply 4"]  # the first one is new: its line was taken
    assert (len(reads), len(lines(path))) == (1, 5)


def test_threads_share_the_recorded_replies(path: Path) -> None:
    LoggingEngine(Counting(), path).complete([request() for _ in range(40)])
    second_life = Counting()
    engine = LoggingEngine(second_life, path)
    got: list[str] = []
    threads = [threading.Thread(target=lambda: got.extend(texts(engine.complete([request()] * 10)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(f"reply {number}" for number in range(1, 41))
    assert not second_life.asked
