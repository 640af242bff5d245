"""Autoencoders: whatever is drawn, mutated or laid out has a bottleneck before as many outputs as inputs."""

from math import prod
from random import Random

import pytest

from automcu_ray.networks.graph import ConstructibilityError, Graph
from automcu_ray.networks.layouts import read, usual
from automcu_ray.networks.lowering import CODE, DECODER
from automcu_ray.networks.search_space import BOTTLENECK, Space
from automcu_ray.networks.spec import ArchitectureSpec

SIGNAL = Space(input_shape=(3, 1, 40), num_classes=120, reconstructs=True)
DENSE = Space(input_shape=(64, 1, 1), num_classes=64, reconstructs=True)
ONE = ArchitectureSpec.model_validate({"backbone": [{"type": "pointwise", "out_channels": 8}]})


def bottleneck(graph: Graph) -> tuple[int, int]:
    """Check the end of an autoencoder, and return the widths of its code and of what is decoded from it."""
    code, decoder, last = graph.ops[-3:]
    assert [op.name for op in (code, decoder, last)] == ["head.code", "head.decoder", "head.linear"]
    assert (code.activation, decoder.activation, last.activation) == ("none", "relu", "none")
    assert last.shape == (prod(graph.input_shape), 1, 1)
    return code.shape[0], decoder.shape[0]


def test_a_spec_that_says_nothing_has_a_bottleneck_and_one_that_does_has_its_own() -> None:
    assert bottleneck(DENSE.graph(ONE)) == (CODE, DECODER)
    own = ONE.replace(head=ONE.head.replace(code=3, decoder=20))
    assert bottleneck(DENSE.graph(own)) == (3, 20)
    assert DENSE.candidate(own).hash != DENSE.candidate(ONE).hash
    assert ArchitectureSpec.model_validate(own.compact()) == own and "code" not in str(ONE.compact())


def test_random_networks_and_their_neighbours_have_bottlenecks_of_many_widths() -> None:
    rng, seen = Random(0), set()
    for _ in range(12):
        found = SIGNAL.sample(rng)
        assert found.spec is not None and found.spec.head.code in BOTTLENECK["code"]
        for _ in range(4):
            found = SIGNAL.mutate(found, rng)
            assert found.spec is not None
            seen.add(bottleneck(SIGNAL.graph(found.spec)))
    assert len({code for code, _ in seen}) > 3 and len({decoder for _, decoder in seen}) > 3


def test_questions_and_answers_know_the_bottleneck() -> None:
    asked = {question.field for question in SIGNAL.questions}
    assert {"code", "decoder", "positions"} <= asked
    answers = SIGNAL.answers(SIGNAL.sample(Random(1)))
    assert answers is not None and {question.field for question in answers} >= {"code", "decoder"}


def test_layouts_keep_where_things_were_and_read_back() -> None:
    for layout in usual(SIGNAL, residual=True)[:6]:
        spec = layout.spec(8, SIGNAL)
        assert spec is not None and 1 < spec.head.positions <= 4
        assert bottleneck(SIGNAL.graph(spec)) == (CODE, DECODER)
        assert read(spec, SIGNAL) == (layout, 8)


@pytest.mark.parametrize("field", ["code", "decoder"])
def test_a_classifier_has_no_bottleneck(field: str) -> None:
    space = Space(input_shape=(64, 1, 1), num_classes=10)
    spec = ONE.replace(head=ONE.head.replace(**{field: 4}))
    with pytest.raises(ConstructibilityError, match=rf"head\.{field}: is for networks that reconstruct .* found 4"):
        space.graph(spec)
