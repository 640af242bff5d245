import json
from random import Random

import pytest

from automcu_ray.record import Candidate, Diagnosis
from automcu_ray.space import Space
from searchers.engines.base import Reply
from searchers.engines.edits import apply
from searchers.replies import UnusableReply, read_advice, read_candidate, read_object

SPACE = Space(input_shape=(1, 8, 8), num_classes=10)
JUNK = ("{", "}", '"', "null", "1e999", "-5", "[", "]", "\x00", "\ud800", "\\ud800", "9" * 5000, "NaN", " " * 3000, ",")


def damage(text: str, rng: Random) -> str:
    for _ in range(rng.randint(1, 6)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.randint(0, 20))
        junk = rng.choice(("", rng.choice(JUNK), text[start:end] * 2))
        text = text[:start] + junk + text[end:]
    return text


def test_a_thousand_damaged_replies_are_candidates_or_reasons_that_can_be_journalled() -> None:
    rng = Random(0)
    for _ in range(1000):
        spec = SPACE.sample(rng).spec
        assert spec is not None
        reply = Reply(text=damage(json.dumps(spec.compact()), rng))
        try:
            candidate = read_candidate(reply, SPACE)
        except UnusableReply as error:
            candidate = Candidate(violations=(error.violation,), reply=reply.text[:500])
        assert Candidate.model_validate_json(candidate.model_dump_json()) == candidate


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


@pytest.mark.parametrize("text", ["Insert {" * 150, "Set layer_1." + "a" * 1200, "Replace layer_1 with {1}. " * 40])
def test_hostile_suggestions_are_passed_over(text: str) -> None:
    spec = SPACE.sample(Random(0)).spec
    assert spec is not None
    assert apply(spec, text).layers()
