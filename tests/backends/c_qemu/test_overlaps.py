"""Every output lies as far over its input as its lag allows: no value changes; with lags smaller by one, values do.

The planner is replaced by one that puts each buffer at the edge of what it may do, so that all overlaps are met.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import DeployedNetwork, deploy
from automcu_ray.problem.precision import Precision
from automcu_ray.sizing.peak_memory import ANYWHERE, Lag
from backends.c_qemu import schedule
from backends.c_qemu.cgen import generate
from backends.c_qemu.gcc_flags import CORE_FLAGS
from backends.c_qemu.kernels import network
from backends.c_qemu.kernels.layer import Layer
from backends.c_qemu.kernels.network import lags
from backends.c_qemu.overlaps import descending
from backends.c_qemu.planner import Buffer, Plan
from tests.backends.host import run_on_host

SHAPE = (3, 9, 14)  # rows and columns differ
FAR = 1 << 16  # more than all buffers of a network here


class Windows(nn.Module):
    """Convolutions and pools of many strides, paddings and groups, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1),
            nn.Conv2d(6, 6, 3, padding=1, groups=6),
            nn.ReLU(),
            nn.Conv2d(6, 6, 5, padding=(1, 3), groups=6),
            nn.Conv2d(6, 4, 1),
            nn.MaxPool2d(3, 1, 1),
            nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2),
            nn.ReLU6(),
            nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8),
            nn.AvgPool2d((1, 2)),
            nn.Conv2d(8, 5, 3, stride=(1, 2), padding=(2, 0)),
            nn.Flatten(),
            nn.Linear(5 * 6, 7),
            nn.Linear(7, 4),
        )

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layers(x)
        return made


class Joins(nn.Module):
    """Sums, a gate, concatenations, sigmoid, leaky ReLU and flattening; at float32 also a split and a shuffle."""

    def __init__(self, shuffles: bool) -> None:
        super().__init__()
        self.shuffles = shuffles
        self.stem, self.cheap = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.gate, self.mix = nn.Conv2d(12, 12, 1), nn.Conv2d(12, 12, 1)
        self.head = nn.Linear(12 * 9 * 7, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.cat((x, self.cheap(x)), dim=1)
        x = x * self.gate(nn.functional.adaptive_avg_pool2d(x, 1)).sigmoid()
        if self.shuffles:
            left, right = x.chunk(2, dim=1)
            x = torch.cat((left.relu(), right), dim=1)
            x = x.view(x.size(0), 2, 6, 9, 14).transpose(1, 2).reshape(x.size(0), 12, 9, 14)
        x = nn.functional.leaky_relu(x + self.mix(x), 0.1)
        made: Tensor = self.head(nn.functional.avg_pool2d(x, (1, 2)).flatten(1))
        return made


@functools.cache
def deployed(name: str, precision: Precision) -> DeployedNetwork:
    torch.manual_seed(1)
    network = Windows() if name == "windows" else Joins(shuffles=precision == "float32")
    for parameter, values in network.named_parameters():
        if parameter.endswith("bias"):
            values.data.zero_()  # else they drown what little is left of the input behind so many layers
    return deploy(network.eval(), SHAPE, precision=precision, calibration=images(64))


def images(count: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (count, *SHAPE), dtype=np.uint8)


class AtTheEdge:
    """Plans that put every output as far as allowed over an input, on one side of it; `over` counts them."""

    def __init__(self, side: str) -> None:
        self.side, self.over = side, 0

    def plan(self, buffers: Sequence[Buffer]) -> Plan:
        offsets: dict[str, int] = {}
        sizes = {buffer.name: buffer.size_bytes for buffer in buffers}
        for number, buffer in enumerate(buffers, start=1):
            offsets[buffer.name] = number * FAR
            places = [self._place(offsets[name], sizes[name], buffer.size_bytes, lag) for name, lag in buffer.over]
            for place in [place for place in places if place is not None][:1]:
                offsets[buffer.name] = place
                self.over += 1
        return Plan(offsets, (len(buffers) + 1) * FAR)

    def _place(self, start: int, size: int, own: int, lag: Lag) -> int | None:
        if self.side != "apart" and lag == ANYWHERE:
            return start + 4  # memmove, one value further
        if self.side == "before" and lag.before < own:
            return start - lag.before
        if self.side == "after" and lag.after < own:
            return start + size + lag.after - own
        return None


def apart(buffers: Sequence[Buffer]) -> Plan:
    return AtTheEdge("apart").plan(buffers)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("core", ["any, float32", None, "no room", "cortex-m4f", "cortex-m55d"])
@pytest.mark.parametrize("name", ["windows", "joins"])
def test_at_the_edge_of_what_is_allowed_no_value_changes(
    name: str, core: Any, side: str, host_gcc: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precision: Precision = "float32" if core == "any, float32" else "int8"
    made, batch, edge = deployed(name, precision), images(20), AtTheEdge(side)
    if core == "no room":  # for the faster kernels, which the wide arenas here have otherwise
        monkeypatch.setattr(network, "live_bytes", lambda *_: 1 << 40)
    core = core if core in CORE_FLAGS else None
    wanted = made.run(batch)
    assert len(np.unique(wanted, axis=0)) == 20  # else little is compared
    if precision == "float32":  # onnxruntime sums in another order
        monkeypatch.setattr(schedule, "plan", apart)
        wanted = run_on_host(made, batch, tmp_path)
    monkeypatch.setattr(schedule, "plan", edge.plan)
    (tmp_path / "edge").mkdir()
    assert np.array_equal(run_on_host(made, batch, tmp_path / "edge", core), wanted)
    assert edge.over >= {"before": 6, "after": 2}[side]
    turned = ">= 0; --" if precision == "float32" else ".descending = 1"
    assert (turned in generate(made).source) == (side == "after")


@pytest.mark.parametrize(("name", "side"), [("windows", "before"), ("windows", "after"), ("joins", "before")])
def test_with_lags_smaller_by_one_values_change(
    name: str, side: str, host_gcc: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def smaller(layer: Layer) -> dict[str, Lag]:
        return {source: Lag(lag.before - 1, lag.after - 1) for source, lag in lags(layer).items()}

    made, batch = deployed(name, "int8"), images(20)
    monkeypatch.setattr(schedule, "plan", AtTheEdge(side).plan)
    monkeypatch.setattr(network, "lags", smaller)
    assert not np.array_equal(run_on_host(made, batch, tmp_path), made.run(batch))


@pytest.mark.thorough
def test_a_plan_beyond_what_is_allowed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "plan", lambda buffers: Plan({buffer.name: 0 for buffer in buffers}, FAR))
    with pytest.raises(ToolchainError, match="must not lie over"):
        generate(deployed("windows", "int8"))


def test_loops_that_are_not_as_expected_are_an_error() -> None:
    with pytest.raises(ToolchainError, match="found 1"):
        descending("for (idx_t oc = 0; oc < 4; ++oc) {}")


def test_a_copy_of_what_lies_there_already_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_place(buffers: Sequence[Buffer]) -> Plan:
        made = apart(buffers)
        for buffer in buffers:
            for name in [name for name, lag in buffer.over if lag == ANYWHERE]:
                made.offsets[buffer.name] = made.offsets[name]
        return made

    made = deployed("windows", "int8")
    monkeypatch.setattr(schedule, "plan", apart)
    assert generate(made).source.count("memmove") == 1  # the flattening
    monkeypatch.setattr(schedule, "plan", in_place)
    assert "memmove" not in generate(made).source
