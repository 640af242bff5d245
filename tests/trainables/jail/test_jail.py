"""The jail: what comes out of it, what it survives, and what is believed."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from automcu_ray.core.errors import ConfigError, ToolMissingError
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.problem.task import Task
from automcu_ray.run.plan import prepare
from automcu_ray.runtime.config import JailConfig, compose
from tests.trainables.jail.jailed import CHECKOUT, jailed_pythons, needs_sandbox
from trainables.datasets.digits import digits
from trainables.jail import candidate
from trainables.jail.client import Jail
from trainables.jail.conversation import CandidateError
from trainables.jail.jailed_trainer import JailedTrainer
from trainables.jail.sandbox import require_sandbox
from trainables.training.loop import train

pytestmark = pytest.mark.jail

DATA = digits()
PROTOCOL = Protocol(epochs=2, batch_size=64, learning_rate=0.1, crop_padding_px=1)
LOOP = "while True: pass\n"
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(72, 10)

    def forward(self, x):
        return self.head(self.body(x))
"""


@pytest.fixture(scope="module")
def jail(digits_task: Task) -> Iterator[Jail]:
    jail = Jail(digits_task, JailConfig(check_seconds=20))
    yield jail
    jail.close()


@pytest.fixture(scope="module")
def trainer(digits_task: Task) -> Iterator[JailedTrainer]:
    trainer = JailedTrainer(digits_task, PROTOCOL, DATA.train, DATA.val, JailConfig())
    yield trainer
    trainer.close()


def gone(pids: set[int]) -> bool:
    deadline = time.monotonic() + 240
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@needs_sandbox
def test_a_sound_network_comes_out_as_two_graphs(jail: Jail) -> None:
    traced = jail.check(NET)
    assert traced.training is not None
    operators = [
        {node.op_type for node in onnx.load_from_string(m).graph.node} for m in (traced.inference, traced.training)
    ]
    assert ["BatchNormalization" in found for found in operators] == [False, True]


@needs_sandbox
def test_a_network_is_made_for_the_task_where_it_asks(jail: Jail) -> None:
    asks = NET.replace("__init__(self)", "__init__(self, num_classes, in_channels=7)")
    asks = asks.replace("Conv2d(1,", "Conv2d(in_channels,").replace("(72, 10)", "(72, num_classes)")
    assert len(jail.check(asks).inference) > 0


@needs_sandbox
def test_a_dead_server_costs_one_candidate_and_not_the_next(jail: Jail) -> None:
    jail.start()
    (server,) = (pid for pid, inner in jailed_pythons().items() if inner == 1)
    threading.Timer(0.5, os.kill, (server, signal.SIGKILL)).start()
    with pytest.raises(CandidateError, match="server ended"):
        jail.check(LOOP)
    assert len(jail.check(NET).inference) > 0


@needs_sandbox
def test_all_inside_ends_with_a_process_that_is_killed() -> None:
    code = (
        "from automcu_ray.runtime.config import *; from automcu_ray.problem.task import Task\n"
        "from trainables.jail.client import Jail\n"
        "from tests.trainables.jail.jailed import jailed_pythons; import threading, time\n"
        "target = read_yaml(CONFIGS / 'target' / 'stm32f405.yaml')\n"
        "task = Task(dataset='d', input_shape=(1, 8, 8), num_classes=10, target=target, constraints=Constraints())\n"
        f"jail = Jail(task, JailConfig()); jail.start(); ask = lambda: jail.check({LOOP!r})\n"
        "def tell():\n"
        "    while len(jailed_pythons()) < 2: time.sleep(0.05)\n"
        "    print(*jailed_pythons(), flush=True)\n"
        "threading.Thread(target=tell).start(); ask()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=CHECKOUT) as process:
        assert process.stdout is not None
        pids = {int(word) for word in process.stdout.readline().split()}
        process.kill()
    assert len(pids) == 2 and gone(pids)


@needs_sandbox
def test_training_in_the_jail_is_training(trainer: JailedTrainer) -> None:
    epochs = list(trainer.start(NET, seed=5))
    summary, deployed = trainer.finish(epochs[-1])
    space: dict[str, type[nn.Module]] = {}
    exec(NET, space)
    torch.manual_seed(5)
    outside = list(train(space["Net"](), DATA.train, DATA.val, PROTOCOL, "cpu", 5))
    assert [epoch.number for epoch in epochs] == [1, 2] and epochs[-1].last
    assert [e.val_accuracy for e in epochs] == pytest.approx([e.val_accuracy for e in outside], abs=0.01)
    assert summary.val_accuracy_float == pytest.approx(epochs[-1].val_accuracy, abs=0.01)
    assert summary.val_accuracy == deployed.accuracy(DATA.val.images, DATA.val.labels)


@needs_sandbox
def test_what_a_candidate_says_of_itself_is_not_its_score(trainer: JailedTrainer) -> None:
    liar = "import trainables.jail.candidate as c, numpy\nc.predict = lambda *a: numpy.zeros(270, int)\n" + NET
    honest, lying = (trainer.finish(list(trainer.start(code, seed=1))[-1])[0] for code in (NET, liar))
    assert lying.val_accuracy == honest.val_accuracy and lying.val_accuracy_float == honest.val_accuracy_float


@needs_sandbox
@pytest.mark.parametrize("code", ["import mmap\nmmap.mmap(-1, 1 << 46)", "x = bytearray(1 << 46)"])
def test_memory_that_is_not_given_is_called_memory(jail: Jail, code: str) -> None:
    with pytest.raises(CandidateError) as caught:
        jail.check(code)
    assert (caught.value.stage, caught.value.resource) == ("build", "memory")


@needs_sandbox
def test_the_network_trained_must_be_the_network_checked_and_chance_outside_torch_gives_one(
    trainer: JailedTrainer,
) -> None:
    lazy = NET.replace("nn.BatchNorm2d(8)", "nn.LazyBatchNorm2d()").replace("nn.Linear(72,", "nn.LazyLinear(")
    two = lazy.replace("nn.Conv2d(1, 8,", "nn.Conv2d(1, 8 if torch.initial_seed() == 0 else 16,")
    with pytest.raises(CandidateError, match="not the one that was checked"):
        list(trainer.start(two, seed=7))
    drawn = lazy.replace("nn.Conv2d(1, 8,", "nn.Conv2d(1, random.randrange(4, 64) + numpy.random.randint(64),")
    assert list(trainer.start("import random, numpy\n" + drawn, seed=7))[-1].last


@needs_sandbox
def test_a_server_that_cannot_start_a_candidate_is_replaced_and_the_candidate_not_blamed(digits_task: Task) -> None:
    before = jailed_pythons()
    jail = Jail(digits_task, JailConfig(memory_mb=1 << 44))  # more bytes than a limit can be
    with pytest.raises(CandidateError) as caught:
        jail.check(NET)
    assert (caught.value.stage, caught.value.resource) == ("start", "sandbox")
    assert jailed_pythons() == before
    jail.close()


@needs_sandbox
def test_a_training_nobody_waits_for_ends(trainer: JailedTrainer) -> None:
    epochs = trainer.start(NET, seed=1)
    next(epochs)
    del epochs
    assert set(jailed_pythons().values()) <= {1}
    assert len(list(trainer.start(NET, seed=2))) == 2


@needs_sandbox
def test_training_has_its_own_time_limit(digits_task: Task) -> None:
    slow = NET.replace("    def forward(self, x):", "    def forward(self, x):\n        while len(x) > 2: pass")
    trainer = JailedTrainer(digits_task, PROTOCOL, DATA.train, DATA.val, JailConfig(train_seconds=0.5))
    with pytest.raises(CandidateError, match=r"more than 0\.5 s") as caught:
        list(trainer.start(slow, seed=1))
    trainer.close()
    assert (caught.value.stage, caught.value.resource) == ("train", "time")


def test_without_isolation_the_limits_stay(digits_task: Task) -> None:
    jail = Jail(digits_task, JailConfig(mode="none", check_seconds=1, memory_mb=256))
    found = {}
    for name, code in {"time": LOOP, "memory": "x = bytearray(1 << 30)", "sandbox": "import os; os.fork()"}.items():
        with pytest.raises(CandidateError) as caught:
            jail.check(code)
        found[name] = caught.value.resource
    jail.close()
    assert found == {"time": "time", "memory": "memory", "sandbox": "sandbox"}


def test_without_isolation_a_candidate_ends_with_its_server(digits_task: Task) -> None:
    jail, before = Jail(digits_task, JailConfig(mode="none")), set(jailed_pythons())
    jail.start()
    (server,) = set(jailed_pythons()) - before
    threading.Timer(0.5, os.kill, (server, signal.SIGKILL)).start()
    with pytest.raises(CandidateError, match="server ended"):
        jail.check(LOOP)
    assert gone(set(jailed_pythons()) - before)


@needs_sandbox
def test_used_up_processor_time_is_told_before_linux_kills(jail: Jail) -> None:
    with pytest.raises(CandidateError) as caught:
        jail.check("import resource as r\nsoft, hard = r.getrlimit(r.RLIMIT_CPU)\nraise SystemExit(hard - soft)")
    assert str(caught.value) == "SystemExit: 1"


@needs_sandbox
@pytest.mark.skipif(
    subprocess.run(["unshare", "-Ur", "true"], capture_output=True, check=False).returncode != 0,
    reason="needs user namespaces",
)
def test_the_root_of_a_rootless_container_has_a_sandbox_too() -> None:
    code = (
        "from automcu_ray.runtime.config import JailConfig; from trainables.jail.sandbox import require_sandbox\n"
        "require_sandbox(JailConfig())"
    )
    subprocess.run(["unshare", "-Ur", sys.executable, "-c", code], cwd=CHECKOUT, check=True, timeout=240)


def test_no_sandbox_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match=r"apt install bubblewrap.*jail\.mode=none"):
        require_sandbox(JailConfig())
    require_sandbox(JailConfig(mode="none"))


def test_code_without_a_toolchain_is_a_configuration_error() -> None:
    config = compose({"backend": "analytic", "searcher": "llm_memory"}, ["searcher.form=code"])
    with pytest.raises(ConfigError, match="'analytic' cannot judge"):
        prepare(config)


def test_a_finalist_has_a_proxy_s_time_for_each_epoch() -> None:
    assert compose({"trainer": "paper002"}).finalist_jail.train_seconds == 30 * 1800


def test_a_network_is_trained_within_the_jails_share_of_a_gpu(
    digits_task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Jail(digits_task, JailConfig(), gpus=0.25)._request("", 1.0)
    limits: list[float] = []
    monkeypatch.setattr(candidate, "limit_gpu_memory", limits.append)
    monkeypatch.setattr(candidate, "_mapped", lambda *about: np.zeros((1, 1, 8, 8), np.uint8))
    monkeypatch.setattr(socket, "recv_fds", lambda *about: (b"", [0, 0, 0], 0, None))
    monkeypatch.setattr(candidate, "train_scored_by", lambda *data, **about: iter(()))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        train = {"train": Protocol(epochs=1).model_dump(), "arrays": [["uint8", [1]]] * 3}
        candidate._train(nn.Identity(), {**request, **train}, theirs)
    assert (request["device"], limits) == ("cuda", [0.25])
