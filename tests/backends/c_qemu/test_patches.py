"""The first layers of a network patch by patch: the same bits in less memory."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch import nn

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.feasibility import FeasibilityReport
from automcu_ray.deploy.export import DeployedNetwork, deploy
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.sizing.footprint import footprint, in_patches
from backends.c_qemu.backend import CQemuBackend
from backends.c_qemu.cgen import fitting_stage, generate
from backends.c_qemu.form import Code, Form
from backends.c_qemu.patches import PatchedGraph, Stage
from tests.backends.host import run_on_host


class Uneven(nn.Module):
    """Windows of all kinds over an odd number of rows, a sum across them, and a stage that need not end there."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 6, 5, stride=2, padding=2)
        self.deep = nn.Conv2d(6, 6, 3, padding=2, dilation=2, groups=6)
        self.pointwise = nn.Conv2d(6, 6, 1)
        self.last = nn.Conv2d(6, 8, (2, 3), stride=(3, 1), padding=(1, 0))
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = torch.relu(x + self.pointwise(torch.relu(self.deep(x))))
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        x = nn.functional.avg_pool2d(torch.relu(self.last(x)), 2, 1, 1)
        return self.head(x.mean((2, 3)))


@pytest.fixture(scope="module")
def uneven() -> DeployedNetwork:
    torch.manual_seed(0)
    images = np.random.default_rng(0).integers(0, 256, (32, 2, 37, 11), dtype=np.uint8)
    return deploy(Uneven().eval(), (2, 37, 11), precision="int8", calibration=images)


def test_bits_stay_in_every_stage_and_number_of_patches(
    uneven: DeployedNetwork, host_gcc: None, tmp_path: Path
) -> None:
    stages = list(PatchedGraph(uneven.with_batch_one()).stages(1 << 20, ()))
    assert {stage.nodes for stage in stages} >= {4, 5, 6} and {stage.patches for stage in stages} >= {2, 3, 10}
    assert all(stage.macs >= 1 for stage in stages) and stages[0].macs < stages[-1].macs
    images = np.random.default_rng(1).integers(0, 256, (16, 2, 37, 11), dtype=np.uint8)
    wanted = uneven.run(images)
    for number, stage in enumerate(stages[::4] + stages[-1:]):
        for code in get_args(Code):
            folder = tmp_path / f"{number}{code}"
            folder.mkdir()
            assert np.array_equal(run_on_host(uneven, images, folder, "cortex-m4f", form=Form(code, stage)), wanted)


def test_weights_are_in_the_c_once(uneven: DeployedNetwork) -> None:
    whole, patched = generate(uneven), generate(uneven, form=Form(stage=Stage(6, 4, 2.0)))
    assert {node: patched.weights[node] for node in whole.weights} == whole.weights
    assert patched.source.count('"') < 1.2 * whole.source.count('"')  # rows of bytes
    assert patched.arena_bytes < whole.arena_bytes
    first = patched.memory.steps[0]
    assert patched.memory.steps.count(first) > whole.memory.steps.count(first)  # a box for each patch


def test_what_does_not_fit_whole_fits_in_patches_and_says_so(
    uneven: DeployedNetwork, gcc: None, target: McuTarget, tmp_path: Path
) -> None:
    def built(ram_bytes: int | None = None, **options: str) -> FeasibilityReport:
        limit = Constraints() if ram_bytes is None else Constraints(ram_kb=ram_bytes / 1024)
        made = CQemuBackend(optimise="speed", arena="least", **options)  # type: ignore[arg-type]
        return made.build(uneven, target, limit, tmp_path).report

    whole = built()
    assert whole.ram_bytes is not None
    limit = whole.ram_bytes - 400
    assert not built(limit).feasible
    fits = built(limit, patches="auto")
    assert fits.feasible and fits.ram_bytes is not None and fits.ram_bytes <= limit
    stage = Form.of(fits.notes).stage
    assert stage is not None and fits.notes == (stage.note,)
    assert not built(whole.ram_bytes, patches="auto").notes
    assert not built(1024, patches="auto").feasible


def test_an_arena_that_no_stage_fits_has_none(uneven: DeployedNetwork) -> None:
    assert fitting_stage(uneven, "cortex-m4f", 64) is None


def test_the_analytic_rung_refuses_nothing_that_patches_make_fit(gcc: None, digits_task: Task, tmp_path: Path) -> None:
    """Its bound is below what the linker finds, however little RAM is left."""
    task = digits_task
    spec = ArchitectureSpec.model_validate(
        {"backbone": [{"type": "conv", "out_channels": 24}, {"type": "conv", "out_channels": 8, "stride": 2}]}
    )
    graph = task.graph(spec)
    bound = in_patches(graph, "int8").ram_lower_bound_bytes
    assert bound < footprint(graph, "int8").ram_lower_bound_bytes
    images = np.random.default_rng(0).integers(0, 256, (16, *task.input_shape), dtype=np.uint8)
    made = deploy(Network(graph).eval(), task.input_shape, precision="int8", calibration=images)
    found = []
    for over in (200, 400, 800, 1600):
        limit = footprint(graph, "int8").ram_lower_bound_bytes + 2048 - over
        report = (
            CQemuBackend(patches="auto", arena="least")
            .build(made, task.target, Constraints(ram_kb=limit / 1024), tmp_path)
            .report
        )
        found.append(report.ram_bytes or 0)
        assert found[-1] >= bound
    assert min(found) < footprint(graph, "int8").ram_lower_bound_bytes + 1040


def test_another_word_is_refused() -> None:
    with pytest.raises(ConfigError, match="patches should be one of never, auto, found 'always'"):
        CQemuBackend(patches="always")  # type: ignore[arg-type]
