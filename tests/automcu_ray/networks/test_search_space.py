"""The space asks for a network question by question: whoever answers them decides what comes."""

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from automcu_ray.core.feasibility import Change
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.search_space import Question, Space
from automcu_ray.networks.spec import ArchitectureSpec

SPACE = Space(input_shape=(3, 32, 32), num_classes=10)


def test_what_was_read_from_a_network_gives_it_again() -> None:
    rng = Random(0)
    for _ in range(100):
        found = SPACE.sample(rng)
        answers = SPACE.answers(found)
        assert answers is not None
        again = SPACE.compose(answers.__getitem__)
        assert again is not None and again.hash == found.hash


def candidate(*layers: dict[str, Any]) -> Candidate:
    return SPACE.candidate(ArchitectureSpec.model_validate({"backbone": layers}))


def test_numbers_that_are_never_drawn_are_read_as_the_nearest_ones_and_other_fields_overlooked() -> None:
    wide = {"type": "conv", "out_channels": 27, "kernel_size": 7, "use_bn": False}
    answers = SPACE.answers(candidate(wide, {"type": "bottleneck", "out_channels": 300, "expansion": 1.6}))
    assert answers is not None
    assert {str(question): value for question, value in answers.items()} == {
        "layers": 2,
        "layer_1.type": "conv",
        "layer_1.out_channels": 24,
        "layer_1.kernel_size of 1, 3, 5": 5,
        "layer_1.stride of 1, 1, 2": 1,
        "layer_1.groups of 1, 1, 1, 2, 4": 1,
        "layer_2.type": "bottleneck",
        "layer_2.out_channels": 128,
        "layer_2.expansion of 0.5, 1, 2": 2,
        "layer_2.stride of 1, 1, 2": 1,
        "positions": 1,
    }


def test_more_or_fewer_layers_than_ever_asked_for_have_no_answers() -> None:
    conv = {"type": "conv", "out_channels": 8}
    assert SPACE.answers(candidate(conv)) is None
    assert SPACE.answers(candidate(*[conv] * 11)) is None


def test_the_questions_are_all_that_are_ever_asked() -> None:
    def anywhere(questions: Iterable[Question]) -> set[tuple[Any, ...]]:
        return {question[:2] for question in questions}

    questions, rng = SPACE.questions, Random(1)
    asked: set[Question] = set()
    for _ in range(100):
        asked |= set(SPACE.answers(SPACE.sample(rng)) or ())
    assert asked <= set(questions)
    assert anywhere(asked) == anywhere(questions)  # each of them of every layer is seldom asked
    counts = Counter(question.field for question in questions)
    assert (counts["layers"], counts["positions"], counts["type"]) == (1, 1, 10)
    assert counts["back"] == 8  # the first two layers have no two before them
    others = {found for found in anywhere(questions) if found[0] not in ("layers", "positions", "type", "back")}
    assert len(questions) == 20 + 10 * len(others)


def test_changes_are_made_where_they_say_or_not_at_all() -> None:
    parent = candidate({"type": "conv", "out_channels": 8}, {"type": "ghost", "out_channels": 12})
    narrower = SPACE.changed(parent, [Change(where="layer_2.out_channels", before=12, after=10)])
    assert narrower == candidate({"type": "conv", "out_channels": 8}, {"type": "ghost", "out_channels": 10}).replace(
        parent=parent.hash
    )
    assert SPACE.changed(parent, [Change(where="layer_2.out_channels", before=12, after=9)]) is None  # not in halves


def test_layers_that_do_not_fit_together_give_nothing() -> None:
    pools = {"layers": 8, "type": "max_pool"}
    assert SPACE.compose(lambda question: pools.get(question.field, question.values[0])) is None


def test_what_is_no_spec_or_cannot_be_built_is_no_candidate() -> None:
    conv, pool = {"type": "conv", "out_channels": 8}, {"type": "max_pool", "kernel_size": 2}
    assert SPACE.candidate_or_none({"backbone": [conv, pool]}, proposer="me") == candidate(conv, pool).replace(
        proposer="me"
    )
    assert SPACE.candidate_or_none({"backbone": [{"type": "warp"}]}) is None
    assert SPACE.candidate_or_none({"backbone": [pool] * 6}) is None  # 32 can be halved five times
