"""Programs that attack the jail, none of them held back by the static screen; `make attacks` runs them.

An attack that gets what it is after raises `ESCAPED`. Whatever else becomes of it, the machine is as it was.
"""

import importlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.deploy import foreign
from automcu_ray.networks.code_screening import CodeError, screen
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import JailConfig
from tests.trainables.jail.attacks.programs import program
from tests.trainables.jail.jailed import CHECKOUT, jailed_pythons
from trainables.datasets.digits import digits
from trainables.jail.client import Jail
from trainables.jail.conversation import CandidateError

FAMILIES = (
    *("files", "proc", "descriptors", "sockets", "namespaces", "tracing", "signals", "limits", "bombs", "persistence"),
    *("results", "labels", "pickles", "native", "clocks"),
)
MODULES = {name: importlib.import_module(f"tests.trainables.jail.attacks.{name}") for name in FAMILIES}
ATTACKS = {f"{family}/{name}": code for family, made in MODULES.items() for name, code in made.ATTACKS.items()}
ENDS = {f"{family}/{name}": end for family, made in MODULES.items() for name, end in getattr(made, "ENDS", {}).items()}
SHORT_S, LONG_S = 3.0, 30.0
PROTOCOL = Protocol(epochs=2, batch_size=64)
HONEST = program("")
DATA = digits()

pytestmark = [
    pytest.mark.attacks,
    pytest.mark.slow,
    pytest.mark.usefixtures("sandbox"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls are named by their numbers on x86-64"),
]


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("canary")
    folder.chmod(0o777)  # so that nothing but the jail is in the way
    (folder / "secret").write_text("secret")
    return folder


@pytest.fixture(scope="module")
def jails(digits_task: Task) -> Iterator[dict[bool, Jail]]:
    """Return a jail for what runs into its time, and one for the rest."""
    limits = {True: SHORT_S, False: LONG_S}
    made = {late: Jail(digits_task, JailConfig(check_seconds=s, memory_mb=512)) for late, s in limits.items()}
    yield made
    for jail in made.values():
        jail.close()


def became(jail: Jail, code: str, *, trains: bool) -> str:
    """Return what the attack met: "ok", "refused" by who checks graphs, or the resource of its failure."""
    task = jail.task
    try:
        if trains:
            arrays = (DATA.train.images, DATA.train.labels, DATA.val.images)
            *_, traced = jail.train(code, 1, PROTOCOL, arrays, DATA.val.labels)
        else:
            traced = jail.check(code)
    except CandidateError as error:
        assert "ESCAPED" not in str(error) and str(error).isprintable()
        return error.resource
    try:
        foreign.check(traced.inference, task.input_shape, task.num_classes)
        made = foreign.deploy(traced.inference, task.input_shape, precision="int8", calibration=DATA.val.images[:8])
    except ToolchainError as error:
        assert str(error).isprintable()
        return "refused"
    assert b"evil" not in made.onnx and b"shadow" not in made.onnx
    return "ok"


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gets_nothing(name: str, jails: dict[bool, Jail], canary: Path) -> None:
    code = program(ATTACKS[name]).replace("CANARY", str(canary)).replace("CHECKOUT", str(CHECKOUT))
    family, expected = name.partition("/")[0], ENDS.get(name)
    jail = jails[expected is not None and "time" in expected]
    for _ in range(2 if family == "persistence" else 1):
        end = became(jail, code, trains=family == "labels")
        assert expected is None or end in expected
    assert os.listdir(canary) == ["secret"]
    for folder in ("/", "/tmp", "/var/tmp", "/dev/shm", "/run"):
        assert "mark" not in os.listdir(folder)
    assert set(jailed_pythons().values()) <= {1}, "only servers are alive, one in each jail"


def test_an_honest_network_is_still_what_it_was(jails: dict[bool, Jail]) -> None:
    for jail in jails.values():
        traced = jail.check(HONEST)
        assert foreign.check(traced.inference, jail.task.input_shape, jail.task.num_classes).parameters == 40 + 50
    arrays = (DATA.train.images, DATA.train.labels, DATA.val.images)
    *epochs, _ = jails[False].train(HONEST, 1, PROTOCOL, arrays, DATA.val.labels)
    assert len(epochs) == PROTOCOL.reports and np.isfinite(epochs[-1].loss)  # type: ignore[union-attr]


def test_the_screen_alone_refuses_what_it_knows_and_no_helper(capsys: pytest.CaptureFixture[str]) -> None:
    screen(HONEST)
    refused = [name for name, code in ATTACKS.items() if refused_by_screen(program(code))]
    with capsys.disabled():
        print(f"\n{len(ATTACKS)} attacks; the screen alone refuses {len(refused)}, the jail has to hold the others")
    assert 0 < len(refused) < len(ATTACKS)
    assert {f"pickles/{name}" for name in MODULES["pickles"].ATTACKS} & set(refused)


def refused_by_screen(code: str) -> bool:
    try:
        screen(code)
    except CodeError:
        return True
    return False


def test_there_are_enough_attacks_of_every_family() -> None:
    assert len(ATTACKS) >= 120 and all(len(made.ATTACKS) >= 9 for made in MODULES.values())
