"""What is checked before a run begins."""

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.networks.graph import Shape
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.run import plan
from automcu_ray.runtime.config import compose
from backends.base import Backend
from tests.trainables.finalists.test_finalist import VendorBackend


class PlainImages:
    """What a plan asks of a data set."""

    name, wants, classes, outputs, kind, targets = "plain", "network", ("a", "b"), 2, "classification", ()
    train = range(1000)

    def __init__(self, input_shape: Shape) -> None:
        self.input_shape = input_shape


@pytest.mark.parametrize("backend", ["vela", "analytic"])
def test_a_backend_takes_part_once_at_most(backend: str) -> None:
    opinions = "second_opinions=[vela]" if backend == "vela" else "second_opinions=[vela,{name: vela, optimise: Size}]"
    config = compose({"task": "digits", "searcher": "random", "backend": backend}, [opinions])
    with pytest.raises(ConfigError, match="once at most, found 'vela' twice"):
        plan.prepare(config)


def test_second_opinions_go_with_the_analytic_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    opinion: Backend = VendorBackend()
    monkeypatch.setattr(plan, "_make_backend", lambda plugin: opinion)
    config = compose({"task": "digits", "searcher": "random", "backend": "analytic"}, ["second_opinions=[vela]"])
    found = plan.prepare(config)
    assert (found.backend, found.second_opinions) == (None, (opinion,))


def test_without_a_toolchain_an_accelerator_still_refuses_by_its_own_limits() -> None:
    found = plan.prepare(compose({"task": "digits", "target": "max78000", "backend": "analytic"}))
    wide = [{"type": "conv", "out_channels": 512}, {"type": "conv", "out_channels": 512}]
    graph = found.task.space.graph(ArchitectureSpec.model_validate({"backbone": wide}))
    (violation,) = found.check_bounds(graph, found.task)
    assert violation.resource == "weight_memory" and violation.limit_bytes == 442_368


def test_a_skeleton_that_the_images_do_not_suit_is_refused_at_once() -> None:
    config = compose({"task": "digits", "searcher": "random", "backend": "analytic"}, ["skeleton={channels: 4}"])
    odd = PlainImages((1, 30, 30))
    with pytest.raises(ConfigError, match=r"skeleton: it cannot be built .* must be a multiple of 4, found 30"):
        plan._task(config, odd)  # type: ignore[arg-type]
    assert plan._task(config, PlainImages((1, 32, 32))).form == "cell"  # type: ignore[arg-type]


def digits_plan(*settings: str) -> plan.Plan:
    return plan.prepare(compose({"task": "digits", "searcher": "random", "backend": "analytic"}, list(settings)))


@pytest.mark.parametrize("which", ["proxy", "full"])
def test_more_reports_than_steps_are_refused_before_the_run(which: str) -> None:
    """1,167 images are 19 steps of 64."""
    assert digits_plan(f"trainer.{which}.reports_per_epoch=19").doubts == ()
    with pytest.raises(ConfigError, match=f"trainer.{which}.reports_per_epoch=20.*has 19 steps.*19 at most"):
        digits_plan(f"trainer.{which}.reports_per_epoch=20")


def test_a_training_of_a_few_steps_is_doubted() -> None:
    (doubt,) = digits_plan("trainer.proxy.batch_size=400", "trainer.proxy.epochs=3").doubts
    assert "trainer.proxy trains for 9 steps in all" in doubt


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["constraints.latency_ms=5"], "nothing here measures time on 'stm32f405'"),
        (["constraints.energy=2mJ"], "energy is limited, which nothing here measures"),
        (["constraints.current_ma=20", "second_opinions=[board]"], "current is limited, which nothing here measures"),
        (["constraints.instructions_m=1"], "nothing counts instructions here"),
        (["objective=flash", "constraints.accuracy=0.9"], "objective is 'flash', which nothing measures here"),
        (["constraints.accuracy=0.9"], "has no effect where the most accurate network is sought"),
        (["budget.bundles=3"], "say how accurate is accurate enough"),
        (["budget.bundles=3", "constraints.accuracy=0.9"], "set budget.finalists=3 or more, found 2"),
    ],
)
def test_goals_that_nothing_can_measure_or_that_have_no_effect_are_refused(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        digits_plan(*settings)


def test_a_protocol_says_how_much_worse_its_proxies_are_than_finalists() -> None:
    goal = ["objective=ram", "constraints.accuracy=0.9", "backend=c_qemu"]
    aims = [digits_plan(*goal, *more).task.aim for more in ([], ["trainer.proxy_errors=2"])]
    assert [aim and round(aim.proxy_floor, 6) for aim in aims] == [0.7, 0.8]


def test_a_latency_is_a_limit_of_instructions_where_their_cycles_are_known() -> None:
    cycles = "target.cycles_per_instruction={value: 2, source: measured on my board}"
    task = plan._task(compose({"task": "digits"}, ["constraints.latency_ms=1", cycles]), PlainImages((1, 8, 8)))  # type: ignore[arg-type]
    assert task.instructions_limit == 84_000  # 168 MHz, two cycles each
    assert task.target.latency_ms(84_000) == 1.0


def test_a_board_gives_opinions_and_is_no_toolchain_that_a_search_could_ask() -> None:
    with pytest.raises(ConfigError, match=r"second_opinions=\[board\]"):
        plan.prepare(compose({"task": "digits", "searcher": "random", "backend": "board"}))
    with pytest.raises(ConfigError, match="backend 'board' cannot serve target 'max78000'"):
        plan.prepare(
            compose({"task": "digits", "target": "max78000", "backend": "analytic"}, ["second_opinions=[board]"])
        )
