"""A cell of NAS-Bench-201 the whole way: bound, linker, training, int8, the emulated board."""

from pathlib import Path
from random import Random

import pytest
from ray import tune

from automcu_ray.core.feasibility import Rung
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.cell import CellSpec
from automcu_ray.networks.cell_network import Skeleton
from automcu_ray.problem.target import Constraints
from automcu_ray.problem.task import Task
from automcu_ray.sizing.footprint import footprint
from backends.ai8x.backend import Ai8xBackend
from backends.boards.qemu import QemuBoard
from backends.toolchain import Toolchain
from searchers.gate.gate import Gate
from tests.automcu_ray.networks.test_cell_space import cell
from tests.backends.conftest import read_target
from tests.trainables.finalists.pipelines import DATA, pipeline
from trainables.finalists.finalist import run_finalist
from trainables.proxy import ProxyTrainable

pytestmark = pytest.mark.training

DRAWN = cell(e01="nor_conv_3x3", e03="skip_connect", e02="avg_pool_3x3", e13="nor_conv_1x1", e23="skip_connect")
DOUBLED = cell(e01="skip_connect", e13="skip_connect", e03="skip_connect")
TOOLS = pytest.mark.usefixtures("qemu")


@pytest.fixture
def task(digits_task: Task) -> Task:
    return digits_task.replace(form="cell", skeleton=Skeleton(channels=4, per_stage=1))


def candidate(task: Task) -> Candidate:
    return task.cells.candidate(list(DRAWN.operations), number=1)


def test_the_bound_is_asked_about_a_cell_and_names_its_operator(task: Task) -> None:
    tight = task.replace(constraints=Constraints(ram_kb=0.5, flash_kb=48))
    report = Gate(tight).submit(candidate(tight))
    assert report is not None and not report.feasible and report.rung == Rung.ANALYTIC
    assert report.violations[0].where.startswith("cell_1.")
    roomy = Gate(task).submit(candidate(task))
    assert roomy is not None and roomy.feasible and roomy.backend == "analytic"


def test_cells_of_a_table_are_asked_nothing(task: Task) -> None:
    tight = task.replace(constraints=Constraints(ram_kb=0.5, flash_kb=48), skeleton=None)
    report = Gate(tight).submit(candidate(tight))
    assert report is not None and report.feasible and report.backend == "table"


def test_an_accelerator_without_the_operators_says_so(task: Task) -> None:
    vendor = task.replace(target=read_target("max78000"))
    found = Ai8xBackend().check_bounds(vendor.graph(DRAWN), vendor)
    assert "it has no operator relu" in found[0].message


def test_a_trial_trains_a_cell_and_scores_it_as_deployed(task: Task) -> None:
    protocol = Protocol(epochs=2, batch_size=64, learning_rate=0.2)
    made = tune.with_parameters(
        ProxyTrainable, task=task, protocol=protocol, train_split=DATA.train, val_split=DATA.val
    )
    trial = made(candidate(task).trial_config())
    trial.train()
    result = trial.train()
    assert result["done"] and result["val_accuracy"] > 0.5
    assert result["val_accuracy"] == pytest.approx(result["training"]["val_accuracy_float"], abs=0.05)


@TOOLS
@pytest.mark.parametrize("drawn", [DRAWN, DOUBLED], ids=["all operations", "a value added to itself"])
def test_a_finalist_is_linked_and_gives_the_bits_of_onnxruntime_on_the_board(
    drawn: CellSpec, task: Task, tmp_path: Path
) -> None:
    chosen = task.cells.candidate(list(drawn.operations), number=1)
    toolchain = Toolchain(task, "c_qemu", {}, tmp_path / "toolchain")
    verdict = toolchain.check(chosen)
    bound = Gate(task).submit(chosen)
    assert verdict.feasible and bound is not None and verdict.parameters == bound.parameters
    protocol = Protocol(epochs=1, batch_size=64, learning_rate=0.2)
    about = pipeline(task, tmp_path / "finalists", protocol, toolchain=toolchain, board=QemuBoard())
    found = run_finalist(chosen, about)
    assert found.usable, found.reason
    assert found.board is not None and found.board.bit_equal_images == found.board.images == 16


@TOOLS
def test_the_linker_needs_at_least_what_the_bounds_say(task: Task, tmp_path: Path) -> None:
    toolchain, rng = Toolchain(task, "c_qemu", {}, tmp_path), Random(1)
    for _ in range(3):
        chosen = task.cells.sample(rng)
        assert chosen.cell is not None
        least, report = footprint(task.graph(chosen.cell), "int8"), toolchain.check(chosen)
        assert report.ram_bytes is not None and report.flash_bytes is not None
        assert report.ram_bytes >= least.ram_lower_bound_bytes and report.flash_bytes >= least.flash_lower_bound_bytes
