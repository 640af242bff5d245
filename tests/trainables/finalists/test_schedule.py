"""Finalists that learn from the best of them: all are trained in float first, and only once."""

from pathlib import Path
from typing import Any

import pytest

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Finalist
from tests.trainables.finalists.pipelines import candidate, pipeline
from trainables.finalists import schedule
from trainables.finalists.distillation import Teacher
from trainables.finalists.finalist import FinalistPipeline, run_finalist, train_float
from trainables.finalists.schedule import run_finalists

pytestmark = pytest.mark.training

NARROW, WIDE = candidate(1, "narrow", 4), candidate(2, "wide", 16)
PROTOCOL = Protocol(epochs=2, batch_size=64, learning_rate=0.2, qat_epochs=2, distill=1.0)


def asked(task: Task, folder: Path, protocol: Protocol = PROTOCOL, **changes: object) -> FinalistPipeline:
    return pipeline(task, folder, protocol, **changes)


def run(*candidates: Candidate, pipeline: FinalistPipeline) -> tuple[dict[str, Finalist], list[Candidate]]:
    """Return the finalists by hash, and who was said to teach."""
    found: list[Finalist] = []
    taught: list[Candidate] = []
    hears = {"on_result": found.append, "on_teacher": taught.append, "on_wait": lambda text: None}
    run_finalists(candidates, pipeline, cpus=1, gpus=0, **hears)  # type: ignore[arg-type]
    return {one.hash: one for one in found}, taught


def shipped(folder: Path, one: Candidate) -> bytes:
    """Return what a candidate became by training with rounding."""
    return (folder / one.hash / "qat" / "deployed.onnx").read_bytes()


def test_the_best_in_float_teaches_and_is_taught_by_itself(
    ray_cluster: None, digits_task: Task, tmp_path: Path
) -> None:
    found, taught = run(NARROW, WIDE, pipeline=asked(digits_task, tmp_path / "both"))
    training = {name: one.training for name, one in found.items()}
    assert training["wide"] and training["narrow"]
    assert training["wide"].quantised[0].val_accuracy_float > training["narrow"].quantised[0].val_accuracy_float
    assert taught == [WIDE]
    run(WIDE, pipeline=asked(digits_task, tmp_path / "wide"))
    assert shipped(tmp_path / "both", WIDE) == shipped(tmp_path / "wide", WIDE)
    run(NARROW, pipeline=asked(digits_task, tmp_path / "narrow"))
    assert shipped(tmp_path / "both", NARROW) != shipped(tmp_path / "narrow", NARROW), "it has another teacher there"


def test_a_teacher_that_is_known_is_not_looked_for_again(
    ray_cluster: None, digits_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = run(NARROW, WIDE, pipeline=asked(digits_task, tmp_path))
    monkeypatch.setattr(schedule, "train_float", None)
    again, taught = run(NARROW, pipeline=asked(digits_task, tmp_path, teacher=Teacher.finalist(WIDE, tmp_path)))
    assert not taught and again["narrow"].training and whole["narrow"].training
    assert again["narrow"].training.quantised == whole["narrow"].training.quantised


def test_another_teacher_is_another_training(digits_task: Task, tmp_path: Path) -> None:
    for one in (NARROW, WIDE):
        train_float(one, asked(digits_task, tmp_path))
    networks = []
    known = [Teacher.finalist(one, tmp_path) for one in (NARROW, WIDE)]
    for teacher in (None, *known):
        run_finalist(NARROW, asked(digits_task, tmp_path, teacher=teacher))
        networks.append(shipped(tmp_path, NARROW))
    assert len(set(networks)) == 3


def test_what_was_trained_in_float_is_not_trained_again(digits_task: Task, tmp_path: Path) -> None:
    whole = run_finalist(WIDE, asked(digits_task, tmp_path / "whole"))
    accuracy = train_float(WIDE, asked(digits_task, tmp_path / "parts"))
    checkpoint = (tmp_path / "parts" / "wide" / "float.checkpoint").read_bytes()
    rest = run_finalist(WIDE, asked(digits_task, tmp_path / "parts"))
    assert rest.training and whole.training and rest.training.quantised == whole.training.quantised
    assert accuracy == rest.training.val_accuracy_float
    assert (tmp_path / "parts" / "wide" / "float.checkpoint").read_bytes() == checkpoint
    assert shipped(tmp_path / "parts", WIDE) == shipped(tmp_path / "whole", WIDE)


def test_a_training_that_fails_teaches_nobody_and_says_so_itself(
    ray_cluster: None, digits_task: Task, tmp_path: Path
) -> None:
    found, taught = run(WIDE, pipeline=asked(digits_task, tmp_path, PROTOCOL.replace(learning_rate=1e30)))
    assert not taught and "FloatingPointError" in found["wide"].reason


@pytest.mark.parametrize("change", [{"distill": 0.0}, {"qat_epochs": 0}])
def test_nobody_teaches_where_nothing_is_to_be_taught(
    ray_cluster: None, digits_task: Task, tmp_path: Path, change: dict[str, float]
) -> None:
    found, taught = run(NARROW, pipeline=asked(digits_task, tmp_path, PROTOCOL.replace(**change)))
    assert not taught and found["narrow"].usable


def test_the_screen_is_told_how_long_training_will_take(
    digits_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def in_parallel(step: object, some: list[Candidate], *about: object, on_wait: Any, **more: object) -> Any:
        for epoch in ("1", "3"):
            (tmp_path / NARROW.hash / "epoch").write_text(epoch)
            on_wait([NARROW])
        yield NARROW, "stopped here"

    (tmp_path / NARROW.hash).mkdir()
    (tmp_path / NARROW.hash / "epoch").write_text("1")
    clock = iter([100.0, 110.0])
    monkeypatch.setattr(schedule, "in_parallel", in_parallel)
    monkeypatch.setattr(schedule.time, "monotonic", lambda: next(clock))
    asked_for = asked(digits_task, tmp_path, Protocol(epochs=5))
    hears: dict[str, Any] = {"on_result": lambda one: None, "on_teacher": None, "on_wait": said.append}
    run_finalists([NARROW], asked_for, cpus=1, gpus=0, **hears)
    assert said == [f"#{NARROW.number} epoch 1/5", f"#{NARROW.number} epoch 3/5, about 10 s of training left"]
