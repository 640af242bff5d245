"""Thousands of mutated replies: each is read, or refused with a reason, and what becomes of it can be journalled."""

import json
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from automcu_ray.networks.candidate import Candidate, Diagnosis
from automcu_ray.networks.search_space import Space
from automcu_ray.problem.task import Task
from automcu_ray.records.journal import Repository
from automcu_ray.testing.searcher_contract import drive
from searchers.dialogue.llm_proposer import LLMProposer
from searchers.dialogue.prompts import starting_candidate
from searchers.dialogue.reply_parsing import UnusableReply, read_advice, read_candidate, read_candidates, read_code
from searchers.engines.base import Reply, Request
from searchers.tune_searchers import LLMMemorySearch, LLMSearch
from tests.searchers.conftest import make_task
from tests.searchers.test_llm_memory import Scripted

pytestmark = pytest.mark.thorough

SPACE = Space(input_shape=(1, 8, 8), num_classes=10)
CODE = starting_candidate(make_task(), "code").code
VALUES: tuple[Any, ...] = (
    *(1, 2, 3, 8, 16, 8.0, 0.5, "conv", "relu", "residual", {"type": "conv", "out_channels": 8}),
    *(None, True, -1, 0, 2**63, 10**400, 1e308, float("nan"), float("-inf"), "", "8", "\x00", "\u202e", "größer 😀"),
    *([], {}, [[]], {"": {}}, "x" * 2000, [8] * 50, {"type": "conv"}),
)
JUNK = (
    *("{", "}", '"', "[", "]", ":", ",", "\x00", "\ud800", "\\ud800", "\u2028", "```", "</think>", "\\", "é"),
    *("null", "NaN", "1e999", "-5", "9" * 5000, " " * 3000),
)


def spec(rng: Random) -> dict[str, Any]:
    found = SPACE.sample(rng).spec
    assert found is not None
    return found.compact()


GOOD: dict[str, Callable[[Random], Any]] = {
    "spec": spec,
    "batch": lambda rng: {"candidates": [spec(rng) for _ in range(4)]},
    "advice": lambda rng: {"problem": "Refused for RAM.", "suggestion": ["Remove layer_2.", "Widen layer_1."]},
}


def mutated(form: str, rng: Random) -> str:
    """A good reply with its values, its text or both changed."""
    if form == "code":
        return damaged(f"```python\n{CODE}```", rng)
    answer = GOOD[form](rng)
    how = rng.choice(("values", "text", "both", "nested", "around"))
    if how == "around":
        return (
            f"Sure {{see below}}: {rng.choice(JUNK)}\n```json\n{json.dumps(answer, indent=rng.choice((None, 4)))}\n```"
        )
    if how == "nested":
        depth = rng.choice((10, 500, 5000))
        return json.dumps(answer)[:-1] + ', "more": ' + '{"a":' * depth + "1" + "}" * depth + "}"
    if how != "text":
        for _ in range(rng.randint(1, 2)):
            change(answer, rng)
    text = json.dumps(answer)
    return text if how == "values" else damaged(text, rng)


def change(answer: Any, rng: Random) -> None:
    """Replace, drop, add or repeat something somewhere inside."""
    places = [answer, *(place for place in inside(answer) if isinstance(place, dict | list) and place)]
    place = rng.choice(places)
    if isinstance(place, list):
        at = rng.randrange(len(place))
        place[at : at + rng.randint(0, 2)] = [deepcopy(rng.choice(VALUES))] * rng.choice((1, 1, 1, 60))
    else:
        key = rng.choice([*place, "extra", "type", "\x00"])
        if rng.random() < 0.3:
            place.pop(key, None)
        else:
            place[key] = deepcopy(rng.choice(VALUES))


def inside(value: Any) -> list[Any]:
    children = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    return [found for child in children for found in (child, *inside(child))]


def damaged(text: str, rng: Random) -> str:
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.randint(1, 30))
        kind = rng.choice(("cut", "drop", "swap", "repeat", "junk", "key"))
        if kind == "cut":
            text = text[:start]
        elif kind == "key":  # the same key twice: the last one counts
            text = text.replace('"type"', '"type": 1, "type"', 1)
        else:
            piece = text[start:end]
            other = {"drop": "", "swap": piece[::-1], "repeat": piece * 3, "junk": rng.choice(JUNK)}[kind]
            text = text[:start] + other + text[end:]
    return text


def read(form: str, reply: Reply) -> list[Candidate]:
    """What a searcher would make of the reply; the advice stands in a candidate, as in a run."""
    if form == "spec":
        return [read_candidate(reply, SPACE)]
    if form == "batch":
        good, bad = read_candidates(reply, SPACE, 4)
        return [*good, *bad]
    if form == "code":
        return [read_code(reply)]
    advice = read_advice(reply)
    return [Candidate(diagnosis=Diagnosis(problem=advice.problem, suggestion=advice.suggestion))]


@pytest.mark.parametrize("form", ["spec", "batch", "advice", "code"])
def test_each_is_read_or_refused_with_a_reason_that_can_be_journalled(form: str) -> None:
    rng, outcomes = Random(form), Counter[str]()
    for _ in range(600):
        reply = Reply(text=mutated(form, rng))
        try:
            candidates = read(form, reply)
        except UnusableReply as error:
            assert str(error)
            candidates = [Candidate(violations=(error.violation,), reply=reply.text[:500])]
        outcomes.update("refused" if candidate.violations else "read" for candidate in candidates)
        for candidate in candidates:
            assert Candidate.model_validate_json(candidate.model_dump_json()) == candidate
    assert min(outcomes["read"], outcomes["refused"]) >= 15  # neither all harmless nor all hopeless


def proposer(request: Request, rng: Random) -> str:
    return mutated("batch", rng)


def both_roles(request: Request, rng: Random) -> str:
    improves = request.json_schema is not None and "problem" in request.json_schema["properties"]
    return mutated("advice" if improves else "spec", rng)


@pytest.mark.parametrize(("make", "answer"), [(LLMSearch, proposer), (LLMMemorySearch, both_roles)])
def test_a_search_over_them_goes_on_and_its_journal_reads_back(
    make: type[LLMProposer], answer: Callable[[Request, Random], str], task: Task, tmp_path: Path
) -> None:
    rng = Random(1)
    engine = Scripted(lambda request: answer(request, rng), instant=True)
    searcher = make(task, engine=engine, stall=1000)  # type: ignore[call-arg]
    searcher.repository = Repository(tmp_path / "journal.jsonl")
    searcher.budget.proposals = 100
    drive(searcher, 200)
    records = searcher.repository.records
    assert searcher.exhausted and not searcher.gave_up
    assert len(records) == 100 and all(record.reason for record in records if record.status != "ok")
    assert {"ok", "invalid"} <= {record.status for record in records}
    assert not any("conversation broke" in record.reason for record in records)
    again = Repository(tmp_path / "journal.jsonl")
    assert (again.records, again.proposed) == (records, searcher.repository.proposed)
