"""A training that is killed goes on from its last epoch, and ends where it would have ended."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from automcu_ray.protocol import Protocol
from automcu_ray.record import Candidate
from automcu_ray.spec import ArchitectureSpec
from automcu_ray.task import Task
from trainables.checkpoint import Checkpoint
from trainables.datasets.digits import digits
from trainables.finalist import FinalistJob, run_finalist
from trainables.job import TrainingJob
from trainables.loop import Epoch

DATA = digits()
SPEC = ArchitectureSpec.model_validate(
    {"backbone": [{"type": "conv", "out_channels": 8}, {"type": "downsample", "out_channels": 16}]}
)
PLAIN = Protocol(epochs=4, batch_size=64, crop_padding_px=1)
MIXED = PLAIN.model_copy(update={"mixup": 1.0, "cutmix": 1.0, "ema_decay": 0.9, "reports_per_epoch": 2})


def training(task: Task, protocol: Protocol, path: Path, about: str = "it") -> tuple[TrainingJob, list[Epoch]]:
    """Return a job and the epochs that it has trained, after those that the file knows of."""
    job = TrainingJob(task, protocol, DATA.train, DATA.val)
    return job, list(job.start(SPEC, seed=0, checkpoint=Checkpoint(path, about)))


def weights(job: TrainingJob) -> list[torch.Tensor]:
    return [value.clone() for value in job.network.state_dict().values()]


@pytest.mark.parametrize("protocol", [PLAIN, MIXED], ids=["plain", "mixed and averaged"])
def test_a_training_that_was_interrupted_ends_as_one_that_was_not(
    protocol: Protocol, digits_task: Task, tmp_path: Path
) -> None:
    whole, epochs = training(digits_task, protocol, tmp_path / "whole")
    stopped = TrainingJob(digits_task, protocol, DATA.train, DATA.val)
    seen = stopped.start(SPEC, seed=0, checkpoint=Checkpoint(tmp_path / "stopped", "it"))
    for _ in range(2 * protocol.reports_per_epoch):
        next(seen)
    rest, others = training(digits_task, protocol, tmp_path / "stopped")
    assert [epoch.number for epoch in others] == [3] * protocol.reports_per_epoch + [4] * protocol.reports_per_epoch
    assert others == epochs[-len(others) :]
    assert all(torch.equal(one, other) for one, other in zip(weights(whole), weights(rest), strict=True))
    assert rest.seconds > stopped.seconds > 0, "the seconds before count"


def test_a_training_that_had_ended_is_not_repeated(digits_task: Task, tmp_path: Path) -> None:
    job, epochs = training(digits_task, MIXED, tmp_path / "it")
    again, only = training(digits_task, MIXED, tmp_path / "it")
    assert only == epochs[-1:]
    assert all(torch.equal(one, other) for one, other in zip(weights(job), weights(again), strict=True)), "the mean"


def test_another_training_or_a_broken_file_is_no_beginning(digits_task: Task, tmp_path: Path) -> None:
    path = tmp_path / "it"
    training(digits_task, PLAIN, path)
    assert Checkpoint(path, "it").state is not None
    assert Checkpoint(path, "another one").state is None
    path.write_bytes(path.read_bytes()[:-100])
    assert Checkpoint(path, "it").state is None
    path.write_bytes(b"")
    assert Checkpoint(path, "it").state is None


KILLED = """
import os, signal, sys
from pathlib import Path
import trainables.finalist as finalist
from tests.trainables.test_checkpoint import CANDIDATE, finalist_job
from automcu_ray.task import Task

def note(path, content, before=finalist.write_whole):
    if path.name == "epoch" and content == sys.argv[3].encode():
        os.kill(os.getpid(), signal.SIGKILL)
    before(path, content)

finalist.write_whole = note
finalist.run_finalist(CANDIDATE, finalist_job(Task.model_validate_json(sys.argv[1]), Path(sys.argv[2])))
"""
CANDIDATE = Candidate(number=3, hash="abc", spec=SPEC)


def finalist_job(task: Task, folder: Path) -> FinalistJob:
    protocol = Protocol(epochs=3, batch_size=64, qat_epochs=2)
    return FinalistJob(task, protocol, DATA.train, DATA.val, None, None, folder, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("epoch", ["2", "4"])  # in the float training; in the training with rounding
def test_a_finalist_whose_process_is_killed_goes_on(epoch: str, digits_task: Task, tmp_path: Path) -> None:
    whole = run_finalist(CANDIDATE, finalist_job(digits_task, tmp_path / "whole"))
    argv = [sys.executable, "-c", KILLED, digits_task.model_dump_json(), str(tmp_path / "killed"), epoch]
    found = subprocess.run(argv, cwd=Path(__file__).parents[2], timeout=250, check=False)
    assert found.returncode == -signal.SIGKILL
    folder = tmp_path / "killed" / "abc"
    assert (folder / "float.checkpoint").exists() and (folder / "epoch").read_text() == str(int(epoch) - 1)
    rest = run_finalist(CANDIDATE, finalist_job(digits_task, tmp_path / "killed"))
    assert rest.training and whole.training
    assert rest.training.quantised == whole.training.quantised and len(whole.training.quantised) == 2
    assert (folder / "float32.onnx").read_bytes() == (tmp_path / "whole" / "abc" / "float32.onnx").read_bytes()
