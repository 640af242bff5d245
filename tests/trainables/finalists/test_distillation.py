"""The winner of another run as a teacher: on the same data alone, from the first epoch on, and never half read."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.problem.task import Task
from automcu_ray.records.events import Finished, Started
from automcu_ray.records.journal import Repository
from automcu_ray.run.plan import prepare
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.run_folder import RunFolder
from tests.automcu_ray.records.test_events import NETWORK, network_manifest
from tests.trainables.finalists.pipelines import DATA, candidate, pipeline
from tests.trainables.test_tabular import write
from trainables.finalists.distillation import Teacher, teacher_of_run
from trainables.finalists.finalist import FinalistPipeline, run_finalist, train_float
from trainables.training.loop import predict
from trainables.training.trainer import WEIGHTS

pytestmark = pytest.mark.training

TOOLS = pytest.mark.usefixtures("gcc")
PROTOCOL = Protocol(epochs=3, batch_size=32, learning_rate=0.2)
SMALL, LARGE = candidate(1, "small", 4), candidate(2, "large", 16, 32)
CODE = {"number": 2, "hash": "large", "code": "class Net: ..."}


def asked(task: Task, folder: Path, protocol: Protocol = PROTOCOL, **changes: Any) -> FinalistPipeline:
    return pipeline(task, folder, protocol, **changes)


@pytest.fixture(scope="module")
def run(digits_task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run, as far as a teacher is concerned, won by the large network."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "teacher")
    assert train_float(LARGE, asked(digits_task, folder.finalists)) is not None
    repository = Repository(folder.journal)
    repository.append(Started(data=DATA.about))
    repository.propose(SMALL, LARGE)
    repository.append(Finished(manifest=network_manifest(number=2, hash="large")))
    return folder.path


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def rewrite(run: Path, event: str, **changes: Any) -> None:
    rows = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    changed = [{**row, **changes} if row["event"] == event else row for row in rows]
    (run / "journal.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))


def test_a_teacher_is_the_network_that_was_trained_and_teaches_from_the_start(run: Path, digits_task: Task) -> None:
    teacher = teacher_of_run(run, digits_task, DATA.about)
    assert (teacher.name, teacher.structure) == ("#2 (large) of run teacher", LARGE.structure)
    assert teacher.from_start
    right = predict(teacher.network(digits_task), DATA.val.images, "cpu") == DATA.val.labels
    assert np.mean(right) > 0.8, "it is trained"


def test_a_student_learns_what_its_teacher_says_and_not_what_is_right(
    run: Path, digits_task: Task, tmp_path: Path
) -> None:
    """Taught by nothing but answers that are wrong by one, a student is wrong by one, too."""
    teacher = teacher_of_run(run, digits_task, DATA.about)
    weights = torch.load(teacher.weights, weights_only=True)
    last = [name for name, value in weights.items() if value.ndim and len(value) == 10]
    wrong = {name: value.roll(1, 0) if name in last else value for name, value in weights.items()}
    torch.save(wrong, tmp_path / WEIGHTS)
    liar = dataclasses.replace(teacher, weights=tmp_path / WEIGHTS)
    taught = PROTOCOL.replace(distill=1.0, epochs=10)
    found = run_finalist(LARGE, asked(digits_task, tmp_path / "out", protocol=taught, teacher=liar))
    assert found.training is not None and found.training.val_accuracy < 0.1, found.reason
    assert found.note == "taught by #2 (large) of run teacher"
    student = Teacher.finalist(LARGE, tmp_path / "out").network(digits_task)
    right_but_one = predict(student, DATA.val.images, "cpu") == (DATA.val.labels + 1) % 10
    assert np.mean(right_but_one) > 0.8


def test_a_checkpoint_of_a_training_with_another_teacher_is_not_gone_on_from(
    run: Path, digits_task: Task, tmp_path: Path
) -> None:
    taught = PROTOCOL.replace(distill=0.9)
    teacher = teacher_of_run(run, digits_task, DATA.about)
    accuracies = [
        train_float(SMALL, asked(digits_task, tmp_path, protocol=taught, teacher=one)) for one in (None, teacher)
    ]
    alone = train_float(SMALL, asked(digits_task, tmp_path / "alone", protocol=taught, teacher=teacher))
    assert accuracies[1] == alone != accuracies[0]


@pytest.mark.parametrize(
    ("event", "changes", "words"),
    [
        ("started", {"data": {**DATA.about, "split_seed": 7}}, r"its data are others.*split_seed 0 here and 7 there"),
        ("started", {"data": None}, "does not say what its data are, or who won"),
        ("started", {"data": {}}, "its data are others"),
        ("finished", {"manifest": {**NETWORK, "number": 9}}, "does not say what its data are, or who won"),
        ("finished", {"manifest": {"number": 9}}, "line 4 is not a journal event"),
        ("finished", {"manifest": [1]}, "line 4 is not a journal event"),
        ("finished", {"manifest": None}, "it has no winner: finish it with --resume"),
        ("proposed", {"candidate": CODE}, "generated code, which is not run here"),
    ],
)
def test_a_run_that_cannot_teach_says_why(
    copy: Path, digits_task: Task, event: str, changes: dict[str, Any], words: str
) -> None:
    rewrite(copy, event, **changes)
    with pytest.raises(ConfigError, match=words):
        teacher_of_run(copy, digits_task, DATA.about)


@pytest.mark.parametrize("content", [None, b"", b"no weights", "of another network", "a list"])
def test_weights_that_cannot_be_read_are_one_line(
    copy: Path, digits_task: Task, tmp_path: Path, content: bytes | str | None
) -> None:
    weights = copy / "finalists" / "large" / WEIGHTS
    if content is None:
        weights.unlink()
    elif isinstance(content, bytes):
        weights.write_bytes(content)
    else:
        train_float(SMALL, asked(digits_task, tmp_path))
        other = torch.load(tmp_path / "small" / WEIGHTS, weights_only=True)
        torch.save(other if content == "of another network" else [1], weights)
    with pytest.raises(ConfigError, match="the weights of its winner cannot be read: ") as error:
        teacher_of_run(copy, digits_task, DATA.about)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["trainer.teacher=nowhere"], "trainer.full.distill, its share of the loss, is 0"),
        (
            ["trainer.teacher=nowhere", "trainer.full.distill=0.9"],
            "trainer.teacher: no run in .*nowhere: give the folder of a run",
        ),
        (["trainer.full.distill=0.9", "trainer.full.qat_epochs=0"], "nobody teaches: finalists"),
        (["trainer.full.distill=0.9", "precision=float32"], "nobody teaches: finalists"),
        (["trainer.proxy.distill=0.9"], "trainer.proxy.distill=0.9: finalists alone have that"),
        (["trainer.proxy.qat_epochs=2"], "trainer.proxy.qat_epochs=2: finalists alone have that"),
    ],
)
def test_a_wrong_teacher_is_told_before_anything_is_written(settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepare(compose({"backend": "analytic"}, ["board.mode=none", *settings]))


@pytest.mark.parametrize("setting", ["trainer.full.distill=0.9", "trainer.teacher=nowhere"])
def test_candidates_of_a_table_learn_from_nobody(setting: str, tmp_path: Path) -> None:
    write(tmp_path)
    settings = [f"dataset.folder={tmp_path}", "dataset.table=cifar100", setting]
    with pytest.raises(ConfigError, match="learn from nobody: leave it out"):
        prepare(compose({"task": "nasbench201", "searcher": "random"}, settings))


@TOOLS
@pytest.mark.parametrize("setting", ["trainer.full.distill=0.9", "trainer.teacher=nowhere"])
def test_code_learns_from_nobody(setting: str) -> None:
    settings = ["engine.model=any", "searcher.form=code", "jail.mode=none", setting]  # nothing is run
    with pytest.raises(ConfigError, match="learn from nobody: leave it out"):
        prepare(compose({"searcher": "llm_memory", "engine": "openai"}, settings))


def test_a_plan_has_its_teacher_and_a_link_is_followed_at_once(run: Path, tmp_path: Path) -> None:
    link = tmp_path / "latest"
    link.symlink_to(run)
    settings = ["board.mode=none", f"trainer.teacher={link}", "trainer.full.distill=0.5"]
    config = compose({"backend": "analytic"}, settings)
    assert config.trainer.teacher == run.resolve()
    teacher = prepare(config).teacher
    assert teacher is not None and teacher.name == "#2 (large) of run teacher"
