"""Finalists: the board is tried twice, compared bit by bit, and what goes wrong is a reason."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from automcu_ray.core.errors import BoardError, ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from backends.base import Backend, Firmware
from backends.boards.base import Board, BoardRun
from backends.toolchain import Toolchain
from tests.trainables.finalists.pipelines import CANDIDATE, DATA, SPEC, pipeline
from trainables.finalists import finalist
from trainables.finalists.board_check import run_on_board
from trainables.finalists.finalist import FinalistPipeline, run_finalist
from trainables.training.loop import Epoch
from trainables.training.trainer import Trainer

pytestmark = pytest.mark.training

TOOLS = pytest.mark.usefixtures("gcc")


class ScriptedBoard(Board):
    """Answers with the given outputs, or raises the given errors, one after the other."""

    name = "scripted"

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.answers: Iterator[Any] = iter(answers)

    def connect(self, elf: Path, target: Any) -> Any:
        raise NotImplementedError

    def instructions(self, ticks: int, target: Any) -> int | None:
        return None

    def run(self, elf: Path, target: Any, inputs: Any, **about: Any) -> BoardRun:
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return BoardRun(answer, 1000, 200, 0.1)


@pytest.fixture(scope="module")
def deployed(digits_task: Task) -> DeployedNetwork:
    trainer = Trainer(digits_task, Protocol(epochs=1), DATA.train, DATA.val)
    (epoch,) = trainer.start(SPEC, seed=0)
    return trainer.finish(epoch)[1]


def test_every_output_byte_counts(digits_task: Task, deployed: DeployedNetwork) -> None:
    images = DATA.val.images[:4]
    right = deployed.run(images)
    wrong = right.copy()
    wrong[2, 3] ^= 1
    good = run_on_board(ScriptedBoard(right), Path("x"), digits_task, deployed, images)
    bad = run_on_board(ScriptedBoard(wrong), Path("x"), digits_task, deployed, images)
    assert (good.bit_equal_images, good.agrees, good.largest_difference) == (4, True, 0)
    assert (bad.bit_equal_images, bad.agrees, bad.largest_difference) == (3, False, 1)


def test_a_board_that_fails_once_is_asked_again_and_twice_is_an_error(
    digits_task: Task, deployed: DeployedNetwork
) -> None:
    images = DATA.val.images[:2]
    once = ScriptedBoard(BoardError("silent"), deployed.run(images))
    assert run_on_board(once, Path("x"), digits_task, deployed, images).agrees
    twice = ScriptedBoard(BoardError("silent"), BoardError("dead"), deployed.run(images))
    with pytest.raises(BoardError, match="dead"):
        run_on_board(twice, Path("x"), digits_task, deployed, images)


def asked(task: Task, folder: Path, **changes: Any) -> FinalistPipeline:
    toolchain = Toolchain(task, "c_qemu", {}, folder / "toolchain")
    return pipeline(task, folder, **{"toolchain": toolchain, **changes})


@TOOLS
def test_a_finalist_leaves_its_files_and_no_reason(digits_task: Task, tmp_path: Path) -> None:
    found = run_finalist(CANDIDATE, asked(digits_task, tmp_path))
    assert found.usable and found.feasibility is not None and found.feasibility.feasible
    assert (tmp_path / "abc" / "weights.pt").exists() and (tmp_path / "abc" / "shipped" / "main.c").exists()
    assert (tmp_path / "abc" / "shipped" / "firmware.elf").read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("error", [ValueError("too few steps"), MemoryError("no room"), FloatingPointError("diverged")])
def test_a_training_that_fails_is_a_reason(
    digits_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def start(training: Trainer, *structure: Any, **about: Any) -> Iterator[Epoch]:
        raise error
        yield

    monkeypatch.setattr(Trainer, "start", start)
    found = run_finalist(CANDIDATE, asked(digits_task, tmp_path))
    assert not found.usable and found.training is None
    assert found.reason == f"{type(error).__name__}: {error}"


class VendorBackend(Backend):
    """Builds a project of one folder and no ELF; `violations` are what it has against every network."""

    name = "vendor"
    programs = ()
    measures = frozenset({"flash"})

    def __init__(self, *violations: Violation) -> None:
        super().__init__()
        self.violations = violations

    def version(self) -> str:
        return "1"

    def accuracy(self, deployed: Any, task: Any, images: Any, labels: Any) -> float:
        return 0.125

    def build(self, deployed: Any, target: Any, constraints: Any, workdir: Path) -> Firmware:
        (workdir / "project").mkdir()
        (workdir / "project" / "net.c").write_text("int net;")
        report = FeasibilityReport(
            feasible=not self.violations,
            backend=self.name,
            rung=Rung.CONVERT,
            flash_bytes=1000,
            violations=self.violations,
        )
        return Firmware(report, None, (workdir / "project",), workdir)


class BrokenBackend(VendorBackend):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def build(self, *arguments: Any) -> Firmware:
        raise self.error


def test_a_toolchain_without_an_elf_can_make_a_winner_and_no_board_is_asked(digits_task: Task, tmp_path: Path) -> None:
    about = asked(digits_task, tmp_path, board=ScriptedBoard())
    assert about.toolchain is not None
    about.toolchain.backend = VendorBackend()
    found = run_finalist(CANDIDATE, about)
    assert found.usable and found.board is None and found.feasibility and found.feasibility.flash_bytes == 1000
    assert found.training and found.training.val_accuracy == 0.125, "what ships is scored as it computes"
    assert (tmp_path / "abc" / "shipped" / "project" / "net.c").read_text() == "int net;"


@TOOLS
def test_second_opinions_stand_beside_the_verdict_and_decide_nothing(digits_task: Task, tmp_path: Path) -> None:
    no = Violation(rung=Rung.CONVERT, resource="operator", where="node0_quant", message="no add here")
    opinions = (
        VendorBackend(no),
        BrokenBackend(ToolchainError("it fell over")),
        BrokenBackend(ValueError("not a zip file")),
    )
    found = run_finalist(CANDIDATE, asked(digits_task, tmp_path, second_opinions=opinions))
    assert found.usable and found.feasibility and found.feasibility.backend == "c_qemu"
    refused, broken, crashed = found.second_opinions
    (violation,) = refused.violations
    assert (violation.where, violation.message, refused.flash_bytes) == ("layer_1.conv", "no add here", 1000)
    assert broken.violations[0].resource == "tool" and broken.violations[0].message == "it fell over"
    assert crashed.violations[0].message == "ValueError: not a zip file"
    assert not (tmp_path / "abc" / "shipped" / "vendor").exists(), "what does not fit does not ship"


@TOOLS
def test_a_limit_of_what_a_board_measured_is_a_reason(digits_task: Task, tmp_path: Path) -> None:
    hot = Violation(rung=Rung.BOARD, resource="current", message="current: the supply's peak is 250 mA")
    found = run_finalist(CANDIDATE, asked(digits_task, tmp_path, second_opinions=(VendorBackend(hot),)))
    assert not found.usable and found.reason == "current: the supply's peak is 250 mA"
    assert found.feasibility and found.feasibility.feasible


@TOOLS
def test_a_board_that_disagrees_or_dies_is_a_reason(digits_task: Task, tmp_path: Path) -> None:
    disagrees = run_finalist(CANDIDATE, asked(digits_task, tmp_path, board=ScriptedBoard(np.zeros((16, 10), np.int8))))
    dead = ScriptedBoard(BoardError("a"), BoardError("gone"))
    dies = run_finalist(CANDIDATE, asked(digits_task, tmp_path, board=dead))
    assert "differs from onnxruntime" in disagrees.reason and not disagrees.usable
    assert disagrees.feasibility is not None and disagrees.feasibility.rung == Rung.BOARD
    assert disagrees.feasibility.stack_used_bytes == 200
    assert "gone" in dies.reason and dies.training is not None


@TOOLS
def test_trained_weights_that_do_not_fit_are_a_reason(digits_task: Task, tmp_path: Path) -> None:
    tight = digits_task.replace(constraints=digits_task.constraints.replace(flash_kb=1.5))
    found = run_finalist(CANDIDATE, asked(tight, tmp_path))
    assert "flash needs" in found.reason and not found.usable


@pytest.mark.parametrize(
    ("name", "about"), [("Trainer", {"spec": SPEC}), ("JailedTrainer", {"code": "class Net: ..."})]
)
def test_a_finalist_has_its_share_of_a_gpu(
    digits_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, about: dict[str, Any]
) -> None:
    def share(*data: Any, gpus: float, **rest: Any) -> Any:
        raise RuntimeError(f"{gpus:g} of a GPU")

    monkeypatch.setattr(finalist, name, share)
    candidate = Candidate(number=3, hash="abc", **about)
    assert "0.25 of a GPU" in run_finalist(candidate, asked(digits_task, tmp_path, gpus=0.25)).reason
