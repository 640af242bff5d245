"""The GENIUS baseline against scripted answers: one cell at a time, every result known before the next one."""

import json
import re

from automcu_ray.problem.task import Task
from automcu_ray.testing.searcher_contract import ask, story
from searchers.engines.base import Request
from searchers.tune_searchers import GeniusSearch
from tests.searchers.sections import read_sections
from tests.searchers.test_llm_memory import Scripted, settle


def answer(request: Request) -> str:
    """A cell that depends on the number of the conversation."""
    return json.dumps({"cell": "".join("ns13p"[(request.talk >> at) % 5] for at in range(6))})


def train(searcher: GeniusSearch, trials: int) -> None:
    for number in range(trials):
        config = ask(searcher, f"trial_{number}")
        ones = config["cell"]["operations"].count("nor_conv_3x3")
        searcher.on_trial_complete(f"trial_{number}", {"val_accuracy": 0.5 + ones / 100})


def tried(request: Request) -> list[dict[str, object]]:
    found: list[dict[str, object]] = read_sections(request.messages)["Tried so far"]
    return found


def test_every_prompt_holds_every_result_before(task: Task) -> None:
    engine = Scripted(answer)
    searcher = GeniusSearch(task, engine=engine)
    searcher.lookahead = 4
    train(searcher, 4)
    assert [len(tried(request) or []) for request in engine.asked[:4]] == [0, 1, 2, 3]
    first = json.loads(answer(engine.asked[0]))["cell"]
    assert tried(engine.asked[1]) == [{"cell": first, "val_accuracy_percent": 50.0}]
    assert all(request.temperature == 0 for request in engine.asked)


def test_a_cell_that_was_tried_is_not_in_the_grammar_unless_repeats_are_allowed(task: Task) -> None:
    for repeats in (False, True):
        engine = Scripted(answer)
        train(GeniusSearch(task, engine=engine, repeats=repeats), 3)
        named = [json.loads(answer(request))["cell"] for request in engine.asked[:2]]
        pattern = engine.asked[2].json_schema["properties"]["cell"]["pattern"]
        assert [bool(re.fullmatch(pattern, cell)) for cell in [*named, "ppps13"]] == [repeats, repeats, True]


def test_a_repeat_is_a_record_and_told_to_the_model(task: Task) -> None:
    engine = Scripted(lambda request: json.dumps({"cell": "ssssss"}))
    searcher = GeniusSearch(task, engine=engine, mend=0)
    train(searcher, 1)
    settle(searcher, records=2)
    assert [row[2] for row in story(searcher)][:2] == ["ok", "duplicate"]
    settle(searcher, records=3)
    assert len(tried(engine.asked[2])) == 1
    assert "1 answers named a cell that had been tried" in engine.asked[2].messages[-1].content
    assert [request.temperature for request in engine.asked[:3]] == [0, 0, 0.2]  # a repeat warms the next request


def test_five_letters_or_an_unknown_one_get_one_repair_then_a_record(task: Task) -> None:
    for cell in ("nnnnn", "nnnnn7"):
        engine = Scripted(lambda request, cell=cell: json.dumps({"cell": cell}))  # type: ignore[misc]
        searcher = GeniusSearch(task, engine=engine)
        searcher.budget.proposals = 1
        settle(searcher, records=1)
        assert [request.role for request in engine.asked] == ["cell", "repair"]
        assert searcher.repository.records[0].status == "invalid"
        assert "a cell is six letters" in searcher.repository.records[0].reason


def test_rules_stand_in_for_a_model_and_change_one_operation_of_the_best(task: Task) -> None:
    searcher = GeniusSearch(task)
    train(searcher, 6)
    assert {record.candidate.proposer for record in searcher.repository.records} == {"offline"}
    assert searcher.trained == 6
