"""The toolchain actor's work, in this process: verdicts on specs, in the words of the spec."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from automcu_ray.core.feasibility import Rung
from automcu_ray.deploy.export import deploy
from automcu_ray.deploy.torch_network import Network, spec_names
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.target import Constraints
from automcu_ray.problem.task import Task
from automcu_ray.sizing.footprint import footprint
from backends.boards.qemu import QemuBoard
from backends.toolchain import Toolchain, _keep_logs_only

pytestmark = pytest.mark.usefixtures("gcc")


def within(task: Task, ram_kb: float, flash_kb: float, precision: str = "int8") -> Task:
    limits = Constraints(ram_kb=ram_kb, flash_kb=flash_kb)
    return task.replace(constraints=limits, precision=precision)


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_no_firmware_is_smaller_than_the_analytic_lower_bound(
    digits_task: Task, precision: str, tmp_path: Path
) -> None:
    task = within(digits_task, 128, 1024, precision)
    toolchain, rng = Toolchain(task, "c_qemu", {}, tmp_path), Random(7)
    for _ in range(6):
        candidate = task.space.sample(rng)
        assert candidate.spec is not None
        report = toolchain.check(candidate)
        least = footprint(task.space.graph(candidate.spec), precision)
        assert report.flash_bytes is not None and report.ram_bytes is not None
        assert least.flash_lower_bound_bytes <= report.flash_bytes
        assert least.ram_lower_bound_bytes <= report.ram_bytes
        assert (report.parameters, report.macs) == (least.parameters, least.macs)


def test_a_refusal_names_layers_of_the_spec_and_leaves_logs_only(digits_task: Task, tmp_path: Path) -> None:
    spec = ArchitectureSpec.model_validate(
        {"backbone": [{"type": "conv", "out_channels": 32}, {"type": "residual", "out_channels": 24}]}
    )
    report = Toolchain(within(digits_task, 4, 8), "c_qemu", {}, tmp_path).check(Candidate(spec=spec, hash="abc"))
    assert not report.feasible and report.rung == Rung.LINK
    assert {v.resource: v.where for v in report.violations} == {"ram": "layer_1.conv", "flash": "layer_2.conv1"}
    assert all(v.over_bytes is not None and v.over_bytes > 0 for v in report.violations)
    assert "__" not in report.violations[0].message
    assert [path.name for path in (tmp_path / "abc").iterdir()] == ["commands.log"]


def test_the_fix_of_a_refusal_links_and_there_is_none_where_sizes_do_not_follow_our_bounds(
    digits_task: Task, tmp_path: Path
) -> None:
    layers = [{"type": "conv", "out_channels": 32}, {"type": "residual", "out_channels": 24}, {"type": "max_pool"}]
    task = within(digits_task, 24, 16)
    toolchain = Toolchain(task, "c_qemu", {}, tmp_path)
    spec = ArchitectureSpec.model_validate({"backbone": layers})
    (violation,) = toolchain.check(task.space.candidate(spec)).violations
    assert violation.resource == "flash" and violation.fix is not None
    number, field = violation.fix.where.removeprefix("layer_").split(".")
    layers[int(number) - 1][field] = violation.fix.after
    fixed = toolchain.check(task.space.candidate(ArchitectureSpec.model_validate({"backbone": layers})))
    assert fixed.feasible and fixed.flash_bytes is not None
    assert fixed.flash_bytes > 0.9 * task.flash_limit_bytes  # no more was given up than had to be
    toolchain.backend.follows_bounds = False  # type: ignore[misc]
    assert toolchain.check(task.space.candidate(spec)).violations[0].fix is None


def test_training_does_not_make_a_firmware_outgrow_its_verdict(digits_task: Task, tmp_path: Path) -> None:
    spec = ArchitectureSpec.model_validate({"backbone": [{"type": "pointwise", "out_channels": 64}] * 4})
    task = within(digits_task, 24, 128)
    toolchain = Toolchain(task, "c_qemu", {}, tmp_path)
    report = toolchain.check(task.space.candidate(spec))
    network = Network(task.space.graph(spec)).train()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        network(torch.rand(8, 1, 8, 8)).square().sum().backward()
        optimiser.step()
    deployed = deploy(network.eval(), task.input_shape, precision="int8", calibration=toolchain.noise())
    trained = toolchain.build(deployed, tmp_path / "trained").report
    assert trained.flash_bytes is not None and report.flash_bytes is not None
    assert abs(trained.flash_bytes - report.flash_bytes) <= 32


@pytest.mark.parametrize(
    ("told", "meant"),
    [
        ("/layers.layer_2__expand/layers.layer_2__expand.0/Conv_quant", "layer_2.expand"),
        ("/layer_12__conv1/layer_12__conv1.0/Conv_quant", "layer_12.conv1"),
        ("the weights of /head__linear/head__linear.1/Gemm_quant (4 bytes).", "the weights of head.linear (4 bytes)."),
        ("/layer_2__add/Add_quant", "layer_2.add"),
        ("the weights of /body/body.0/Conv_quant (83813 bytes).", "the weights of body.0 (83813 bytes)."),
        ("/conv/Conv_quant", "conv"),
    ],
)
def test_onnx_paths_become_names_of_the_spec(told: str, meant: str) -> None:
    assert spec_names(told) == meant


def test_what_a_tool_left_behind_masks_no_verdict(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "work"
    for path in (outside, folder, folder / "objects"):
        path.mkdir()
    (outside / "kept").write_text("not ours")
    (folder / "link").symlink_to(outside)
    (folder / "dangling").symlink_to(folder / "nowhere")
    (folder / "commands.log").write_text("$ gcc")
    _keep_logs_only(folder)
    assert [path.name for path in folder.iterdir()] == ["commands.log"] and (outside / "kept").exists()
    _keep_logs_only(tmp_path / "gone")


def test_a_folder_that_cannot_be_cleaned_up_masks_no_verdict(
    digits_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name == "net.c" and tmp_path in path.parents:
            raise PermissionError(path)
        unlink(path, missing_ok)

    toolchain = Toolchain(digits_task, "c_qemu", {}, tmp_path)
    spec = ArchitectureSpec.model_validate({"backbone": [{"type": "conv", "out_channels": 4}]})
    monkeypatch.setattr(Path, "unlink", refuse)
    candidate = digits_task.space.candidate(spec)
    assert toolchain.check(candidate).feasible
    assert {path.name for path in (tmp_path / candidate.hash).iterdir()} == {"commands.log", "net.c"}


@pytest.mark.usefixtures("qemu")
def test_the_emulated_board_counts_the_same_for_any_image_and_layers_add_up(digits_task: Task, tmp_path: Path) -> None:
    toolchain = Toolchain(digits_task, "c_qemu", {}, tmp_path, QemuBoard())
    backbone = [{"type": kind, "out_channels": 8} for kind in ("conv", "residual", "pointwise", "pointwise")]
    candidate = digits_task.space.candidate(ArchitectureSpec.model_validate({"backbone": backbone}))
    assert candidate.spec is not None
    report = toolchain.check(candidate)
    assert report.feasible and report.rung == Rung.EMULATE and report.instructions
    torch.manual_seed(1)  # other weights than the check's
    network = Network(digits_task.space.graph(candidate.spec))
    deployed = deploy(network, (1, 8, 8), precision="int8", calibration=toolchain.noise())
    firmware = toolchain.build(deployed, tmp_path / "other")
    assert firmware.board_elf is not None
    how: dict[str, Any] = {"output_dtype": np.int8, "output_count": 10}
    images = [np.full((1, 1, 8, 8), value, np.uint8) for value in (0, 255)]
    runs = [QemuBoard().run(firmware.board_elf, digits_task.target, deployed.encode(one), **how) for one in images]
    assert runs[0].instructions == runs[1].instructions == pytest.approx(report.instructions, rel=0.1)
    costs = toolchain.profile(deployed, firmware.report, tmp_path / "other")
    assert sum(cost.instructions for cost in costs) == pytest.approx(runs[0].instructions, rel=0.02)
    assert len(costs) + 2 == 10  # as many marks as classes: one must not be read as the other
    assert costs[0].layer == "layer_1.conv" and costs[0].weights_bytes >= 72
    arena = toolchain.memory_map(deployed, firmware.report)
    assert arena is not None and firmware.report.ram is not None
    assert 0 <= firmware.report.ram.arena_bytes - arena.arena_bytes < 8  # as the linker aligns it
    assert list(dict.fromkeys(arena.steps)) == [cost.layer for cost in costs]
    assert arena.fullest is not None and arena.occupied_bytes(arena.fullest) == arena.arena_bytes


@pytest.mark.usefixtures("qemu")
def test_too_many_instructions_name_the_dearest_layer_and_the_change_that_fits(
    digits_task: Task, tmp_path: Path
) -> None:
    backbone = [{"type": "conv", "out_channels": 8}, {"type": "conv", "out_channels": 24}]
    candidate = digits_task.space.candidate(ArchitectureSpec.model_validate({"backbone": backbone}))
    limited = digits_task.replace(constraints=digits_task.constraints.replace(instructions_m=0.12))
    toolchain = Toolchain(limited, "c_qemu", {}, tmp_path, QemuBoard())
    report = toolchain.check(candidate)
    (violation,) = report.violations
    assert not report.feasible and (violation.resource, violation.where) == ("instructions", "layer_2.conv")
    assert violation.found == report.instructions and f"{violation.over:,} more" in violation.message
    assert violation.fix is not None
    repaired = limited.space.changed(candidate, report.fixes)
    assert repaired is not None and toolchain.check(repaired).feasible
