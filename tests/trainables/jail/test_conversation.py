"""What a candidate's process may say, and what becomes of it when it says anything else."""

import json
import socket
from collections.abc import Iterator

import pytest

from trainables.jail import conversation
from trainables.jail.conversation import CandidateError, Conversation

Ends = tuple[Conversation, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Conversation(ours, seconds=0.5, messages=5), theirs


def said(ends: Ends, text: bytes) -> CandidateError:
    talk, theirs = ends
    theirs.sendall(text)
    theirs.close()
    with pytest.raises(CandidateError) as caught:
        list(talk)
    return caught.value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"hello\n", "no JSON"),
        (b"[" * 100_000 + b"\n", "no JSON"),
        (b"[1]\n", "no JSON object"),
        (b"{}\n" * 6, "too many messages"),
        (b'{"event": "graph", "kind": "inference", "size": 9}\nshort', "without its end"),
        (b'{"event": "graph", "kind": "other", "size": 0}\n', "nobody wants"),
        (b'{"event": "graph", "kind": "inference", "size": -1}\n', "nobody wants"),
        (b'{"event": "graph", "kind": "inference", "size": 0}\n' * 2, "nobody wants"),
    ],
)
def test_nonsense_is_the_candidate_s_failure(ends: Ends, text: bytes, why: str) -> None:
    error = said(ends, text)
    assert why in str(error) and error.resource == "sandbox"


def test_a_line_without_end_is_not_collected_for_ever(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_LINE_BYTES", 1000)
    assert "without end" in str(said(ends, b"x" * 2000))


def test_a_graph_beyond_all_bounds_is_not_read(ends: Ends) -> None:
    error = said(ends, b'{"event": "graph", "kind": "inference", "size": 64000001}\n')
    assert error.resource == "memory"


def test_silence_ends_with_the_time(ends: Ends) -> None:
    talk, _ = ends
    with pytest.raises(CandidateError, match="did not end in time"):
        list(talk)


def test_a_failure_is_one_printable_line(ends: Ends) -> None:
    failure = {"event": "failed", "resource": "mind", "error": "a\x1b[2J\nb" + "c" * 999}
    stage = {"event": "stage", "stage": "forward"}
    error = said(ends, f"{json.dumps(stage)}\n{json.dumps(failure)}\n".encode())
    assert (error.stage, error.resource) == ("forward", "sandbox")
    assert str(error).isprintable() and str(error).startswith("a [2J b") and len(str(error)) == 300


def test_messages_and_graphs_arrive_whole(ends: Ends) -> None:
    talk, theirs = ends
    theirs.sendall(b'{"event": "epoch"}\n{"event": "graph", "kind": "inference", "size": 3}\n\n{}{"event": "x"}\n')
    theirs.close()
    assert [message["event"] for message in talk] == ["epoch", "x"]
    assert talk.graphs == {"inference": b"\n{}"} and talk.finished
