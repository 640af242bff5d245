import json

import pytest

from automcu_ray.networks.candidate import Diagnosis
from searchers.dialogue.reply_parsing import UnusableReply, read_advice, read_object
from searchers.engines.base import Reply


@pytest.mark.parametrize(
    "text", ['{"a":' * 3000, "[" * 15_000, '{"backbone":' + "[" * 7000, "{" * 16_000, "{" * 1_000_000, "\n" * 15_000]
)
def test_text_made_to_exhaust_a_parser_is_refused(text: str) -> None:
    with pytest.raises(UnusableReply):
        read_object(Reply(text=text))


def test_an_engine_error_is_told_apart_from_unreadable_text() -> None:
    with pytest.raises(UnusableReply) as caught:
        read_object(Reply(finish_reason="error", error="timeout"))
    assert (caught.value.violation.resource, str(caught.value)) == ("engine", "engine: timeout")


def test_advice_with_a_lone_surrogate_is_refused_and_other_text_can_be_journalled() -> None:
    with pytest.raises(UnusableReply):
        read_advice(Reply(text='{"problem": "\\ud800", "suggestion": "x"}'))
    advice = read_advice(Reply(text='{"problem": "\\u0000 \\u2028 $(rm -rf /)", "suggestion": "größer 😀"}'))
    diagnosis = Diagnosis(problem=advice.problem, suggestion=advice.suggestion)
    assert Diagnosis.model_validate_json(diagnosis.model_dump_json()) == diagnosis


def test_a_tab_in_a_text_is_read_as_one() -> None:
    advice = read_advice(Reply(text='{"problem": "too\tnarrow", "suggestion": "widen"}'))  # a grammar lets it pass
    assert advice.problem == "too\tnarrow"


@pytest.mark.parametrize("network", ["x", 7, [], {}, {"backbone": [{"type": "magic"}]}, {"backbone": "\u0000"}])
def test_a_network_that_a_model_adds_to_its_advice_goes_into_no_prompt(network: object) -> None:
    advice = read_advice(Reply(text=json.dumps({"problem": "p", "suggestion": "s", "network": network})))
    assert advice.model_dump() == {"problem": "p", "suggestion": "s"}
