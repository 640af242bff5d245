import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.testing.backend_contract import BackendContract
from automcu_ray.testing.networks import deployed_network
from backends.base import Backend
from backends.venvs.base import probes
from backends.venvs.environment import ENVIRONMENTS
from backends.venvs.executorch import ExecutorchBackend, read_report
from tests.backends.conftest import read_target
from tests.backends.forms import FORMS, Enlarged, network_with

DILATED = "dilated convolution"
KERNELS = {"cortex_m::quantized_conv2d": 3, "aten::view_copy": 1, "aten::cat": 2}


class FakeProgram:
    """Stands for the program of the environment: writes answers, a .pte and a report."""

    def __init__(self, deployed: DeployedNetwork) -> None:
        self.deployed = deployed
        self.report = json.dumps({"kernels": KERNELS, "planned_bytes": 1872})
        self.commands: list[list[str]] = []

    def __call__(self, argv: Sequence[str], *, timeout_s: float, cwd: Path) -> subprocess.CompletedProcess[str]:
        self.commands.append(list(argv))
        self.deployed.run(probes(self.deployed.input_shape)).tofile(cwd / "answers.int8")
        (cwd / "net.pte").write_bytes(bytes(5000))
        (cwd / "pte.json").write_text(self.report)
        return subprocess.CompletedProcess(argv, 0, "", "")


@pytest.fixture
def fake(look_ready: Callable[[str], None]) -> FakeProgram:
    look_ready("executorch")
    return FakeProgram(deployed_network("plain", "int8"))


@pytest.mark.parametrize(
    ("name", "core"), [("rp2040", "cortex-m0plus"), ("stm32f405", "cortex-m4"), ("stm32h723", "cortex-m7")]
)
def test_the_program_is_told_the_core(fake: FakeProgram, name: str, core: str, tmp_path: Path) -> None:
    ExecutorchBackend(run=fake).build(fake.deployed, read_target(name), Constraints(), tmp_path)
    (command,) = fake.commands
    assert command[0] == str(ENVIRONMENTS["executorch"].python)
    assert command[1].endswith("foreign/write_pte.py") and command[2:] == [".", core]


def test_planned_memory_and_portable_kernels_are_in_the_report(
    fake: FakeProgram, target: McuTarget, tmp_path: Path
) -> None:
    made = ExecutorchBackend(run=fake).build(fake.deployed, target, Constraints(), tmp_path)
    assert made.report.feasible and made.elf is None
    assert (made.report.ram_bytes, made.report.flash_bytes) == (1872, 5000)
    assert "3 calls of Cortex-M kernels for cortex-m4f" in made.report.notes
    assert "on portable kernels: aten::cat x2, aten::view_copy x1" in made.report.notes
    assert any("runtime and kernels are not counted" in note for note in made.report.notes)
    assert [path.name for path in made.sources] == ["net.pte", "pte.json"]


@pytest.mark.parametrize(
    "report",
    [
        "",
        "rubbish",
        "{}",
        '{"kernels": {}, "planned_bytes": -1}',
        '{"kernels": {"a": 0}, "planned_bytes": 1}',
        '{"kernels": {}, "planned_bytes": 1.5}',
        '{"kernels": {}, "planned_bytes": 1, "more": 1}',
        '{"kernels": {}, "planned_bytes": 18',
    ],
)
def test_a_report_that_cannot_be_is_an_error(fake: FakeProgram, target: McuTarget, tmp_path: Path, report: str) -> None:
    fake.report = report
    with pytest.raises(ToolchainError, match="executorch should leave a report"):
        ExecutorchBackend(run=fake).build(fake.deployed, target, Constraints(), tmp_path)


def test_no_report_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"pte\.json"):
        read_report(tmp_path / "pte.json")


@pytest.fixture
def executorch() -> None:
    if ExecutorchBackend().missing_programs():
        pytest.skip(f"needs ExecuTorch in an environment of its own: {ExecutorchBackend().how_to_install()}")


@pytest.mark.slow
@pytest.mark.usefixtures("executorch")
class TestExecutorch(BackendContract):
    builds_elf = False

    def make(self) -> Backend:
        return ExecutorchBackend()

    def test_too_large_is_a_report_and_no_firmware(self, target: McuTarget, tmp_path: Path) -> None:
        """With less than the contract's 2 KB of RAM, which are enough without the runtime."""
        made = self.build(target, Constraints(ram_kb=1, flash_kb=2), tmp_path)
        ram, flash = made.report.violations
        assert not made.report.feasible and made.sources == ()
        assert (ram.resource, ram.limit_bytes, ram.found_bytes) == ("ram", 1024, made.report.ram_bytes)
        assert (flash.resource, flash.limit_bytes, flash.found_bytes) == ("flash", 2048, made.report.flash_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FORMS.keys() - {DILATED}))
def test_every_form_answers_as_onnxruntime(executorch: None, name: str, target: McuTarget, tmp_path: Path) -> None:
    report = ExecutorchBackend().build(network_with(FORMS[name]()), target, Constraints(), tmp_path).report
    assert report.feasible


@pytest.mark.slow
def test_a_form_that_cannot_be_checked_is_named(executorch: None, target: McuTarget, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"node\d+_quant: the kernel of a dilated convolution"):
        ExecutorchBackend().build(network_with(FORMS[DILATED]()), target, Constraints(), tmp_path)


@pytest.mark.slow
def test_what_has_no_kernel_of_its_own_is_named(executorch: None, target: McuTarget, tmp_path: Path) -> None:
    report = ExecutorchBackend().build(network_with(Enlarged(3)), target, Constraints(), tmp_path).report
    (portable,) = [note for note in report.notes if note.startswith("on portable kernels")]
    assert "aten::upsample_nearest2d x1" in portable and "conv" not in portable
