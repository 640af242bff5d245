from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnxruntime import GraphOptimizationLevel

from automcu_ray.core.errors import ToolMissingError
from automcu_ray.deploy.exact_products import exact_level


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    exact_level.cache_clear()
    yield
    exact_level.cache_clear()


def saturating(*levels: GraphOptimizationLevel) -> type[ort.InferenceSession]:
    """Return a session whose outputs are one off at these levels."""

    class Saturating(ort.InferenceSession):
        def __init__(self, model: bytes, options: ort.SessionOptions, **rest: Any) -> None:
            super().__init__(model, options, **rest)
            self.off = options.graph_optimization_level in levels

        def run(self, *data: Any) -> list[Any]:
            return [output ^ np.int8(self.off) for output in super().run(*data)]

    return Saturating


def test_this_host_has_an_exact_level() -> None:
    assert exact_level() in (GraphOptimizationLevel.ORT_ENABLE_ALL, GraphOptimizationLevel.ORT_DISABLE_ALL)


def test_without_optimisation_where_optimised_kernels_saturate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "InferenceSession", saturating(GraphOptimizationLevel.ORT_ENABLE_ALL))
    assert exact_level() == GraphOptimizationLevel.ORT_DISABLE_ALL


def test_wrong_integers_are_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    every = (GraphOptimizationLevel.ORT_ENABLE_ALL, GraphOptimizationLevel.ORT_DISABLE_ALL)
    monkeypatch.setattr(ort, "InferenceSession", saturating(*every))
    with pytest.raises(ToolMissingError, match="exact sums of int8 products"):
        exact_level()
