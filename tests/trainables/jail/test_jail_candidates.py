"""Sixty programs as language models and enemies write them, through screen, jail and toolchain.

The first line of each says what becomes of it: `ok`, or the rung and the resource of its refusal. Enemies go a second
time with the screen off, since the screen is not what holds them.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.target import Constraints
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import JailConfig
from tests.trainables.jail.jailed import CHECKOUT, jailed_pythons
from trainables.jail import toolchain as module
from trainables.jail.toolchain import CodeToolchain

PROGRAMS = sorted(Path(__file__).with_name("open_code").rglob("*.py"))
SHORT_S, LONG_S = 1.5, 20.0
MARKS = ("written", "system", "unpickled", "subprocess", "symlink", "afterwards", "big", "door")
Check = Callable[[str, str], str]

pytestmark = pytest.mark.usefixtures("sandbox", "gcc")


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("canary")
    folder.chmod(0o777)  # so that nothing but the jail is in the way
    for parent in list(folder.parents)[:2]:
        parent.chmod(0o711)
    return folder


@pytest.fixture(scope="module")
def check(digits_task: Task, tmp_path_factory: pytest.TempPathFactory, canary: Path) -> Iterator[Check]:
    """Return a function from code and expectation to what became of it: "ok" or "rung resource"."""
    toolchains: dict[tuple[bool, bool], CodeToolchain] = {}
    task = digits_task.replace(constraints=Constraints())

    def toolchain(in_colour: bool, in_time: bool) -> CodeToolchain:
        if (in_colour, in_time) not in toolchains:
            mine = task.replace(input_shape=(3, 32, 32)) if in_colour else task
            config = JailConfig(check_seconds=LONG_S if in_time else SHORT_S, memory_mb=512)
            folder = tmp_path_factory.mktemp("toolchain")
            toolchains[in_colour, in_time] = CodeToolchain(mine, "c_qemu", {}, folder, config)
        return toolchains[in_colour, in_time]

    def became(code: str, expected: str) -> str:
        code = code.replace("CANARY_FOLDER", str(canary)).replace("CHECKOUT", str(CHECKOUT))
        asked = toolchain("3x32x32" in code.splitlines()[0], "time" not in expected)
        report = asked.check(Candidate(hash="abc", code=code))
        if report.feasible:
            return "ok"
        (violation,) = report.violations
        assert violation.message.isprintable() and 0 < len(violation.message) <= 300
        return f"{violation.rung} {violation.resource}"

    yield became
    for used in toolchains.values():
        used.close()


@pytest.mark.parametrize("path", PROGRAMS, ids=name)
def test_each_program_meets_the_end_that_it_announces(path: Path, check: Check) -> None:
    expected = path.read_text().splitlines()[0].removeprefix("# ").split(";")[0]
    expected = expected.removesuffix(" 3x32x32").removeprefix("refused: ")
    assert check(path.read_text(), expected) == expected


@pytest.mark.parametrize("path", [path for path in PROGRAMS if path.parent.name == "hostile"], ids=name)
def test_the_jail_holds_without_the_screen(
    path: Path, check: Check, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "screen", lambda code: None)
    monkeypatch.setenv("CANARY_SECRET", "secret")
    expected = path.read_text().splitlines()[0].split("without the screen: ")[1]
    assert check(path.read_text(), expected) == expected
    assert list(canary.iterdir()) == []
    for folder in (CHECKOUT, Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path.home()):
        assert not set(MARKS) & set(os.listdir(folder))
    assert set(jailed_pythons().values()) <= {1}, "only servers are alive, one in each jail"


def test_there_are_sixty_programs() -> None:
    by_kind = [sum(path.parent.name == kind for path in PROGRAMS) for kind in ("good", "failing", "hostile")]
    assert by_kind[0] >= 30 and min(by_kind[1:]) >= 15
