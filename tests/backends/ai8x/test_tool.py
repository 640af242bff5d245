"""The real ai8xize: AUTOMCU_AI8X is the path of a checkout of ai8x-synthesis, AUTOMCU_AI8X_PYTHON its interpreter."""

import os
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.target import Constraints
from backends.ai8x.backend import Ai8xBackend, convert
from tests.backends.ai8x.networks import conv, deploy_graph, make_graph, make_task, read_target
from tests.backends.ai8x.test_placement import FIT_LATER, place_from_both_ends
from trainables.datasets.digits import digits
from trainables.training.trainer import Trainer

RESIDUAL = {"type": "residual", "out_channels": 64}
pytestmark = pytest.mark.slow  # four seconds a network


@pytest.fixture(scope="module")
def backend() -> Ai8xBackend:
    checkout = os.environ.get("AUTOMCU_AI8X")
    if checkout is None:
        pytest.skip("needs AUTOMCU_AI8X, the path of a checkout of analogdevicesinc/ai8x-synthesis")
    return Ai8xBackend(checkout=checkout, python=os.environ.get("AUTOMCU_AI8X_PYTHON", sys.executable))


def test_a_trained_spec_goes_through_to_c(backend: Ai8xBackend, tmp_path: Path) -> None:
    """Its weight memory is the analytic figure, its known answers are ours, and the digits are still told apart."""
    data = digits()
    task = make_task((1, 8, 8))
    layers = [conv(16), {"type": "residual", "out_channels": 16}, {"type": "max_pool"}, conv(24)]
    spec = ArchitectureSpec.model_validate({"backbone": layers})
    trainer = Trainer(task, Protocol(epochs=12), data.train, data.val)
    *_, last = trainer.start(spec, seed=0)
    summary, deployed = trainer.finish(last)
    made = backend.build(deployed, task.target, task.constraints, tmp_path)
    assert made.report.feasible, made.report.violations
    network, placement = convert(deployed, task.target, task.constraints)
    by_hand = 16 * 9 + 2 * 16 * 16 * 9 + 16 * 16 + 16 * 24 * 9 + 240  # convolutions, the sum's identity, the head
    assert placement.weight_bytes == by_hand
    assert made.report.notes[0] == f"weight memory: {by_hand:,} of 442,368 bytes"
    assert network.accuracy(data.val.images, data.val.labels) > summary.val_accuracy - 0.01 > 0.9
    assert (tmp_path / "project" / "cnn.c").is_file()
    assert "check_output" in (tmp_path / "project" / "main.c").read_text()


@pytest.mark.parametrize(
    ("target", "shape"), [("max78000", (1, 8, 8)), ("max78000", (3, 24, 24)), ("max78002", (1, 8, 8))]
)
def test_random_specs_take_the_memory_that_was_foreseen(
    backend: Ai8xBackend, tmp_path: Path, target: str, shape: tuple[int, int, int]
) -> None:
    """Weights must be equal for `build` to pass at all, and so must be the known answers; biases are compared here."""
    task, rng, built = make_task(shape, target), Random(5), 0
    while built < 7:
        graph = task.space.graph(task.space.sample(rng).spec)
        if backend.check_bounds(graph, task):
            continue
        deployed, workdir = deploy_graph(graph), tmp_path / str(built)
        workdir.mkdir()
        made = backend.build(deployed, task.target, task.constraints, workdir)
        network, placement = convert(deployed, task.target, task.constraints)
        assert made.report.feasible, made.report.violations
        if all(np.any(layer.biases) for layer in network.values if layer.biases is not None):
            assert made.report.notes[1].startswith(f"bias memory: {placement.bias_bytes:,} of ")
        built += 1


@pytest.mark.parametrize(("layers", "shape"), FIT_LATER.values(), ids=FIT_LATER)
def test_what_is_placed_at_a_later_try_the_tool_takes(
    backend: Ai8xBackend, tmp_path: Path, layers: list[dict[str, Any]], shape: tuple[int, int, int]
) -> None:
    graph, task = make_graph(layers, shape), make_task(shape)
    assert backend.check_bounds(graph, task) == ()
    made = backend.build(deploy_graph(graph), task.target, task.constraints, tmp_path)
    assert made.report.feasible, made.report.violations


def test_a_sum_of_maps_at_the_upper_end_is_taken(
    backend: Ai8xBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its two operands, 8x8 words of 4 bytes each, end where a part of the memory ends."""
    place_from_both_ends(monkeypatch)
    task = make_task()
    graph = make_graph([{"type": "max_pool"}, {"type": "residual", "out_channels": 40}])
    deployed = deploy_graph(graph)
    assert 32_768 - 512 in convert(deployed, task.target, task.constraints)[1].in_offsets
    made = backend.build(deployed, task.target, task.constraints, tmp_path)
    assert made.report.feasible, made.report.violations


@pytest.mark.parametrize(
    ("layers", "shape", "resource"),
    [
        ([conv(64)] * 12 + [conv(64, kernel_size=1)] * 7, (3, 4, 4), "weight_memory"),
        ([conv(512, kernel_size=1), conv(16, kernel_size=1)] * 5, (1, 4, 4), "bias_memory"),
        (
            [conv(64), RESIDUAL, {"type": "max_pool", "kernel_size": 4}],
            (3, 64, 64),
            "data_memory",
        ),
        ([conv(4)] * 33, (1, 8, 8), "layers"),
        ([conv(96), {"type": "max_pool"}, {"type": "avg_pool"}], (3, 16, 16), "channels"),
    ],
)
def test_what_is_refused_beforehand_the_tool_refuses_as_well(
    backend: Ai8xBackend, tmp_path: Path, layers: list[dict[str, Any]], shape: tuple[int, int, int], resource: str
) -> None:
    graph = make_graph(layers, shape)
    (foreseen,) = backend.check_bounds(graph, make_task(shape))
    assert foreseen.resource == resource
    limits = ("weight_memory", "bias_memory", "data_memory", "max_layers", "max_pooled_channels")
    lenient = read_target(**dict.fromkeys(limits, 8))  # so that it reaches the tool, whose limits are its own
    made = backend.build(deploy_graph(graph), lenient, Constraints(), tmp_path)
    assert [violation.resource for violation in made.report.violations] == [resource]
