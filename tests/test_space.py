"""The space asks for a network question by question: whoever answers them decides what comes."""

from random import Random

from automcu_ray.space import Space
from automcu_ray.spec import ArchitectureSpec

SPACE = Space(input_shape=(3, 32, 32), num_classes=10)


def test_what_was_read_from_a_network_gives_it_again() -> None:
    rng = Random(0)
    for _ in range(100):
        found = SPACE.sample(rng)
        answers = SPACE.answers(found)
        assert answers is not None
        again = SPACE.compose(lambda name, _, known=answers: known[name][0])  # type: ignore[misc]
        assert again is not None and again.hash == found.hash


def test_a_network_that_no_question_leads_to_has_no_answers() -> None:
    for layers in (
        [{"type": "conv", "out_channels": 8}],  # one layer: fewer than ever asked for
        [{"type": "conv", "out_channels": 7}, {"type": "max_pool"}],
        [{"type": "conv", "out_channels": 8, "activation": "relu6"}, {"type": "max_pool"}],
    ):
        assert SPACE.answers(SPACE.candidate(ArchitectureSpec.model_validate({"backbone": layers}))) is None


def test_layers_that_do_not_fit_together_give_nothing() -> None:
    pools = {"layers": 8, "type": "max_pool"}
    assert SPACE.compose(lambda name, values: pools.get(name.rpartition(".")[2], values[0])) is None
