"""What is checked before a run begins."""

import pytest

from automcu_ray import plan
from automcu_ray.config import compose
from automcu_ray.errors import ConfigError
from automcu_ray.spec import ArchitectureSpec
from backends.base import Backend
from tests.trainables.test_finalist import VendorBackend


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
    (violation,) = found.foresee(graph, found.task)
    assert violation.resource == "weight_memory" and violation.limit_bytes == 442_368
