"""A finalist goes two ways to int8: validation chooses, both are reported, and what ships is what was chosen."""

import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Finalist, Quantised
from automcu_ray.reports.console import outcome
from automcu_ray.runtime.run_folder import RunFolder
from automcu_ray.testing.dataset_contract import opened
from backends.boards.qemu import QemuBoard
from tests.automcu_ray.reports.test_run_report import finish, page, repository, trained
from tests.trainables.finalists.pipelines import CANDIDATE, DATA, pipeline
from tests.trainables.finalists.test_finalist import asked as with_toolchain
from tests.trainables.finalists.test_test_evaluation import evaluated
from trainables.finalists.finalist import FinalistPipeline, load_deployed, read_epochs, run_finalist
from trainables.training.loop import Epoch
from trainables.training.trainer import Trainer

pytestmark = pytest.mark.training

SHORT = Protocol(epochs=1, batch_size=32, learning_rate=0.5)
TOOLS = pytest.mark.usefixtures("qemu")


def asked(task: Task, folder: Path, qat_epochs: int, *, rate: float = 0.5) -> FinalistPipeline:
    """Return a pipeline with one epoch before those that round, so that more epochs help."""
    return pipeline(task, folder, SHORT.replace(qat_epochs=qat_epochs, learning_rate=rate))


@pytest.fixture(scope="module")
def taken(digits_task: Task, tmp_path_factory: pytest.TempPathFactory) -> tuple[Finalist, FinalistPipeline]:
    about = asked(digits_task, tmp_path_factory.mktemp("finalists"), 4)
    return run_finalist(CANDIDATE, about), about


def test_what_validation_prefers_ships_and_both_are_reported(taken: tuple[Finalist, FinalistPipeline]) -> None:
    found, folder, val = taken[0], taken[1].folder / "abc", DATA.val
    assert found.training is not None, found.reason
    first, other = found.training.quantised
    assert (first.method, other.method) == ("qat", "ptq"), "four more epochs help after one"
    assert found.training.val_accuracy == first.val_accuracy > other.val_accuracy
    assert found.training.val_accuracy_float == pytest.approx(other.val_accuracy_float, abs=0.004)  # one image of 270
    for way in (first, other):
        assert load_deployed(folder / way.method).accuracy(val.images, val.labels) == way.val_accuracy
    assert load_deployed(folder) == load_deployed(folder / "qat")
    assert (folder / "epoch").read_text() == "5"
    assert [(one.epoch, one.rounded) for one in found.epochs] == [(1, False), *((at, True) for at in (2, 3, 4, 5))]
    assert found.epochs[0].val_accuracy == pytest.approx(other.val_accuracy_float, abs=0.004)


def test_an_epoch_that_was_repeated_is_told_once_and_a_cut_line_not_at_all(tmp_path: Path) -> None:
    rows = ((1, 0.5), (2, 0.6), (3, 0.7), (2, 0.65))
    (tmp_path / "epochs.jsonl").write_text(
        "".join(f'{{"epoch": {epoch}, "val_accuracy": {accuracy}}}\n' for epoch, accuracy in rows) + '{"epoch": 3, "val'
    )
    assert [(one.epoch, one.val_accuracy) for one in read_epochs(tmp_path)] == [(1, 0.5), (2, 0.65)]
    assert read_epochs(tmp_path / "none") == ()


def test_training_on_that_helps_nobody_does_not_ship(digits_task: Task, tmp_path: Path) -> None:
    found = run_finalist(CANDIDATE, asked(digits_task, tmp_path, 1, rate=1e-9))
    assert found.training is not None, found.reason
    assert [way.method for way in found.training.quantised] == ["ptq", "qat"]
    assert load_deployed(tmp_path / "abc") == load_deployed(tmp_path / "abc" / "ptq")


def test_rounding_that_breaks_training_costs_nothing_but_its_time(
    digits_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverges(*about: object) -> Iterator[Epoch]:
        raise FloatingPointError("the loss became nan")
        yield

    alone = run_finalist(CANDIDATE, asked(digits_task, tmp_path / "alone", 0))
    monkeypatch.setattr(Trainer, "start_rounded", diverges)
    found = run_finalist(CANDIDATE, asked(digits_task, tmp_path / "both", 2))
    assert found.training is not None and alone.training is not None
    assert (found.training.val_accuracy, found.reason) == (alone.training.val_accuracy, "")
    assert found.note == "training with rounding failed: FloatingPointError: the loss became nan"
    assert load_deployed(tmp_path / "both" / "abc").onnx == load_deployed(tmp_path / "alone" / "abc").onnx


def test_only_what_becomes_int8_and_is_no_generated_code_trains_on(digits_task: Task, tmp_path: Path) -> None:
    about = asked(digits_task, tmp_path, 4)
    in_float = dataclasses.replace(about, task=digits_task.replace(precision="float32"))
    code = Candidate(number=4, hash="def", code="class Net: ...")
    assert [about.qat_epochs(CANDIDATE), about.qat_epochs(code), in_float.qat_epochs(CANDIDATE)] == [4, 0, 0]
    found = run_finalist(CANDIDATE, in_float)
    assert found.training is not None and found.training.quantised == ()


def test_manifest_and_screen_have_both_ways_and_the_float_network_as_it_was_trained(
    taken: tuple[Finalist, FinalistPipeline], digits_task: Task, tmp_path: Path
) -> None:
    manifest = evaluated(*taken, tmp_path / "bundle")
    folder, test = taken[1].folder / "abc", opened(DATA)
    assert [way.method for way in manifest.quantised] == ["qat", "ptq"]
    assert manifest.test_accuracy == load_deployed(folder / "qat").accuracy(test.images, test.labels)
    assert manifest.test_accuracy_float == load_deployed(folder / "ptq").as_float.accuracy(test.images, test.labels)
    shipped = tmp_path / "bundle"
    assert (shipped / "network_float32.onnx").read_bytes() == (folder / "ptq" / "float32.onnx").read_bytes()
    assert (shipped / "network_int8.onnx").read_bytes() == (folder / "qat" / "deployed.onnx").read_bytes()
    console = Console(record=True, width=200, file=io.StringIO())
    outcome(console, RunFolder(tmp_path), digits_task, manifest, interrupted=False)
    ways = {way.method: way.val_accuracy for way in manifest.quantised}
    assert f"qat {ways['qat']:.4f}; ptq {ways['ptq']:.4f}; qat ships" in console.export_text()


@TOOLS
def test_the_board_computes_what_training_with_rounding_gave(digits_task: Task, tmp_path: Path) -> None:
    about = with_toolchain(digits_task, tmp_path, board=QemuBoard(), protocol=SHORT.replace(qat_epochs=4))
    found = run_finalist(CANDIDATE, about)
    assert found.usable and found.training is not None and found.training.quantised[0].method == "qat", found.reason
    assert found.board is not None and found.board.bit_equal_images == found.board.images == 16


def test_the_report_has_a_line_for_each_way(tmp_path: Path) -> None:
    record = trained(1, 0.95)
    assert record.training is not None
    ways = (
        Quantised(method="qat", val_accuracy=0.9731, val_accuracy_float=0.9742),
        Quantised(method="ptq", val_accuracy=0.9621, val_accuracy_float=0.9753),
    )
    found = repository(record)
    finish(found, record, training=record.training.replace(quantised=ways))
    text = page(tmp_path, found).text
    assert "qat, ships 97.31 % 97.42 %" in text and "ptq 96.21 % 97.53 %" in text
