"""Training in the jail: the data that goes in, and what the protocol keeps from code that would bend it."""

import time
from collections.abc import Iterator

import pytest

from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import JailConfig
from tests.trainables.jail.jailed import needs_sandbox
from tests.trainables.jail.test_jail import DATA, LOOP, NET, PROTOCOL
from trainables.jail import client
from trainables.jail.client import Jail
from trainables.jail.conversation import CandidateError
from trainables.jail.jailed_trainer import JailedTrainer

pytestmark = pytest.mark.jail


@pytest.fixture(scope="module")
def trainer(digits_task: Task) -> Iterator[JailedTrainer]:
    trainer = JailedTrainer(digits_task, PROTOCOL, DATA.train, DATA.val, JailConfig())
    yield trainer
    trainer.close()


@needs_sandbox
def test_training_data_is_read_only_for_everyone(trainer: JailedTrainer) -> None:
    vandal = """
import fcntl, mmap, os, stat
def attack():
    files = 0
    for file in range(3, 64):
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                continue
        except OSError:
            continue
        files += 1
        assert stat.S_IMODE(os.fstat(file).st_mode) == 0o444 and os.lseek(file, 0, os.SEEK_CUR) == 0
        path = f"/proc/self/fd/{file}"
        for attempt in (
            (os.pwrite, file, bytes(99), 0), (os.ftruncate, file, 0), (mmap.mmap, file, 0), (os.fchmod, file, 0o666),
            (os.open, path, os.O_RDWR), (os.utime, file, (1, 1)), (os.setxattr, file, "user.note", b"hello"),
            (os.setxattr, path, "user.note", b"hello"), (os.getxattr, file, "user.note"), (fcntl.flock, file, 1),
            (fcntl.lockf, file, 1), (fcntl.fcntl, file, 1033, 0), (fcntl.fcntl, file, 1036, bytes(8)),
        ):
            try:
                attempt[0](*attempt[1:])
            except OSError:
                continue
            raise AssertionError(f"{attempt[0].__name__} succeeds on training data")
    assert files % 3 == 0 < files  # a mapping keeps a second descriptor
"""
    forward = "    def forward(self, x):\n        if self.training:\n            attack()"
    assert list(trainer.start(vandal + NET.replace("    def forward(self, x):", forward), seed=1))[-1].last


@needs_sandbox
def test_training_data_comes_when_the_network_stands(trainer: JailedTrainer) -> None:
    early = """
import os, stat
for file in range(3, 64):
    try:
        assert not stat.S_ISREG(os.fstat(file).st_mode), "there is data already"
    except OSError:
        pass
"""
    assert list(trainer.start(early + NET, seed=1))[-1].last


FORGER = """
import json, os, sys
import trainables.jail.candidate as candidate
def forge(network, request, channel):
    reader = channel.makefile("r")
    def say(**message):
        channel.sendall(json.dumps(message).encode() + b"\\n")
    %s
    reader.read()  # it stays until it is ended: one that had gone could not be handed anything
candidate._train = forge
"""


@needs_sandbox
@pytest.mark.parametrize(
    ("forged", "why"),
    [
        ("say(event='predictions', classes=[0] * 270); reader.readline(); say(event='epoch', last=True)", "2 times"),
        ("[say(event='predictions', classes=[0] * 270) for _ in range(3)]", "predictions out of turn"),
        ("say(event='epoch', last=True)", "an epoch out of turn"),
    ],
)
def test_a_training_ends_where_the_protocol_ends(trainer: JailedTrainer, forged: str, why: str) -> None:
    with pytest.raises(CandidateError, match=why):
        list(trainer.start(FORGER % forged + NET, seed=1))


@needs_sandbox
def test_no_count_of_right_answers_comes_back(trainer: JailedTrainer) -> None:
    asks = (
        "reader.readline(); say(event='predictions', classes=[0] * 270); raise SystemExit('heard ' + reader.readline())"
    )
    with pytest.raises(CandidateError, match=r'heard \{"better": false\}'):
        list(trainer.start(FORGER % asks + NET, seed=1))


@needs_sandbox
def test_building_has_the_time_of_a_check_and_not_of_a_training(
    digits_task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "GRACE_S", 3)
    jail = Jail(digits_task, JailConfig(check_seconds=1, train_seconds=60))
    arrays = (DATA.train.images, DATA.train.labels, DATA.val.images)
    started_s = time.monotonic()
    with pytest.raises(CandidateError) as caught:
        list(jail.train(LOOP, 1, PROTOCOL, arrays, DATA.val.labels))
    jail.close()
    assert (caught.value.stage, caught.value.resource) == ("build", "time") and time.monotonic() - started_s < 50
